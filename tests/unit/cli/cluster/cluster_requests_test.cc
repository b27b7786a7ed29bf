#include "cli/cluster/cluster.h"

#include <gmock/gmock.h>

#include "cli/cluster/commands.h"
#include "cli/cluster/objects.h"
#include "operator/core/workload.h"
#include "tests/support/scripted_transport.h"

namespace oarlock::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Job = api::TrainingJob;

Json status_body(int code, const std::string& reason, const std::string& message) {
  return {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
}

Json job_named(const std::string& name, const std::string& namespace_name = "team") {
  return {{"metadata", {{"name", name}, {"namespace", namespace_name}}}};
}

class ClusterRequests : public ::testing::Test {
 protected:
  void answer(int status, const Json& body) { transport_->script({.status = status, .pieces = {body.dump()}}); }
  Error error_of(const std::string& name) {
    const auto job = cluster().training_job(name);
    EXPECT_FALSE(job);
    return job ? Error{} : job.error();
  }
  Cluster cluster() const {
    kube::ClusterConfig config;
    config.source = "~/.kube/config, context prod";
    config.server = "https://api:6443";
    config.namespace_name = "team";
    return {config, transport_, {}, clock_};
  }
  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
};

TEST_F(ClusterRequests, SuggestsSimilarName) {
  answer(404, status_body(404, "NotFound", "trainingjobs.oarlock.dev \"brt\" not found"));
  answer(200, {{"kind", "TrainingJobList"}, {"items", Json::array({job_named("vit"), job_named("bert")})}});
  const Error error = error_of("brt");
  EXPECT_EQ(error.code, ExitCode::kNoInput);
  EXPECT_EQ(error.message, "TrainingJob 'brt' does not exist in namespace team; did you mean 'bert'?");
}

TEST_F(ClusterRequests, NamesNamespaceThatHasTheJob) {
  answer(404, status_body(404, "NotFound", "trainingjobs.oarlock.dev \"bert\" not found"));
  answer(200, {{"items", Json::array()}});
  answer(200, {{"items", Json::array({job_named("bert", "research")})}});
  EXPECT_EQ(error_of("bert").message,
            "TrainingJob 'bert' does not exist in namespace team; there is one in namespace research: add -n");
  EXPECT_EQ(transport_->requests().back().target,
            "/apis/oarlock.dev/v1alpha1/trainingjobs?fieldSelector=metadata.name%3Dbert&limit=200");
}

TEST_F(ClusterRequests, ReportsMissingCrd) {
  answer(404, status_body(404, "NotFound", "the server could not find the requested resource"));
  const Error error = error_of("bert");
  EXPECT_EQ(error.code, ExitCode::kUnavailable);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("https://api:6443 (~/.kube/config, context prod) does not serve trainingjobs"),
                    HasSubstr("docs/install.md")));
}

TEST_F(ClusterRequests, NamesForbiddenVerbAndResource) {
  answer(403, status_body(403, "Forbidden", "User \"jane\" cannot get resource"));
  const Error error = error_of("bert");
  EXPECT_EQ(error.code, ExitCode::kNoPermission);
  EXPECT_EQ(error.message,
            "cannot get trainingjobs.oarlock.dev 'bert' in namespace team: User \"jane\" cannot get resource; this "
            "needs a role "
            "with the verb get for trainingjobs.oarlock.dev");
}

TEST_F(ClusterRequests, ExplainsOtherErrors) {
  answer(401, status_body(401, "Unauthorized", "Unauthorized"));
  EXPECT_THAT(error_of("bert").message, HasSubstr("does not accept the credentials (status 401)"));
  answer(500, status_body(500, "InternalError", "etcdserver: leader changed"));
  EXPECT_EQ(error_of("bert").code, ExitCode::kTempFail);
  transport_->script({.status = 200, .pieces = {}, .failure = http::TransportErrorKind::kConnect});
  const Error unreachable = error_of("bert");
  EXPECT_EQ(unreachable.code, ExitCode::kUnavailable);
  EXPECT_THAT(unreachable.message, AllOf(HasSubstr("context prod"), HasSubstr("choose another --context")));
}

TEST_F(ClusterRequests, MessagesOfServerCannotControlTerminal) {
  answer(422, status_body(422, "Invalid", "spec.nodes: \x1b[2J invalid\nvalue"));
  EXPECT_EQ(error_of("bert").message.find('\x1b'), std::string::npos);
}

TEST_F(ClusterRequests, RejectsDeepOrOtherDocuments) {
  EXPECT_EQ(parse_response(std::string(100'000, '[')).error().code, ExitCode::kDataErr);
  EXPECT_EQ(parse_response("[]").error().code, ExitCode::kDataErr);
  EXPECT_EQ(parse_response("<html>").error().code, ExitCode::kDataErr);
  EXPECT_TRUE(parse_response("{}"));
}

std::string items_of(const std::string& item, size_t count) {
  std::string text = R"({"items":[)";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? "," : "") + item;
  return text + "]}";
}

TEST_F(ClusterRequests, BoundsTheValuesOfAResponse) {
  EXPECT_TRUE(parse_response(items_of("{}", 400'000)));
  EXPECT_TRUE(parse_response(items_of(R"(",\",{[{[")", 900'000))) << "characters of strings are not values";
  const auto parsed = parse_response(items_of("{}", 600'000));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ExitCode::kDataErr);
  EXPECT_EQ(parsed.error().message, "the response of the API server has more than 1000000 values");
}

TEST_F(ClusterRequests, ReadsPagesWithTooManyValuesInSmallerOnes) {
  transport_->script({.status = 200, .pieces = {items_of("{}", 600'000)}});
  answer(200, {{"items", Json::array({job_named("a")})}});
  int count = 0;
  EXPECT_TRUE(cluster().list(training_jobs(), {}, [&](const Json&) { return ++count > 0; }));
  EXPECT_EQ(count, 1);
  EXPECT_THAT(transport_->requests().back().target, HasSubstr("limit=10"));
}

TEST_F(ClusterRequests, RejectsMalformedLists) {
  for (const char* body : {R"({"items":[0]})", R"({"items":[{}]})", R"({"items":[{"metadata":7}]})", R"({"items":{}})",
                           R"({"items":"text"})"}) {
    transport_->script({.status = 200, .pieces = {body}});
    const Result<void> listed =
        cluster().list(training_jobs(), {.namespace_name = "team", .label_selector = "", .field_selector = ""},
                       [](const Json&) { return true; });
    ASSERT_FALSE(listed) << body;
    EXPECT_EQ(listed.error().code, ExitCode::kDataErr);
    EXPECT_THAT(listed.error().message,
                HasSubstr("cannot list trainingjobs.oarlock.dev in namespace team: the response "
                          "of the API server is malformed: "));
  }
  answer(200, {{"items", nullptr}});
  EXPECT_TRUE(cluster().list(training_jobs(), {}, [](const Json&) { return true; }));
}

TEST_F(ClusterRequests, NamesOfServerCannotControlTerminal) {
  EXPECT_EQ(qualified_name("bert"), "trainingjob.oarlock.dev/bert");
  EXPECT_EQ(qualified_name("\x1b]0;title\x07"), "trainingjob.oarlock.dev/\\x1b]0;title\\x07");
}

TEST_F(ClusterRequests, ListsPageByPage) {
  answer(200, {{"kind", "PodList"},
               {"apiVersion", "v1"},
               {"metadata", {{"continue", "more"}}},
               {"items", Json::array({job_named("a")})}});
  answer(200, {{"kind", "PodList"},
               {"apiVersion", "v1"},
               {"metadata", Json::object()},
               {"items", Json::array({job_named("b")})}});
  std::vector<std::string> names;
  const auto listed = cluster().list(
      kube::pods(), {.namespace_name = "team", .label_selector = "a=b", .field_selector = ""}, [&](const Json& pod) {
        EXPECT_EQ(pod["kind"], "Pod");
        names.push_back(pod["metadata"]["name"]);
        return true;
      });
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_THAT(names, ::testing::ElementsAre("a", "b"));
  EXPECT_THAT(transport_->requests().back().target, HasSubstr("&continue=more"));
}

TEST_F(ClusterRequests, EndsEndlessList) {
  for (int i = 0; i < 100; ++i) answer(200, {{"metadata", {{"continue", "more"}}}, {"items", Json::array()}});
  const auto listed =
      cluster().list(kube::pods(), {.namespace_name = "team", .label_selector = "", .field_selector = ""},
                     [](const Json&) { return true; });
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, ExitCode::kUnavailable);
  EXPECT_EQ(listed.error().message,
            "https://api:6443: cannot list pods in namespace team: the list does not end: the server sent 11 pages "
            "with 0 objects; check the API server and the proxies in front of it");
  EXPECT_EQ(transport_->requests().size(), 11u);
}

// The timeout of one request is 30 s by default.
TEST_F(ClusterRequests, SlowListEndsAfterTenTimeouts) {
  const Json page = {{"metadata", {{"continue", "more"}}}, {"items", Json(20, job_named("a"))}};
  transport_->when_empty({.status = 200, .pieces = {page.dump()}, .takes = std::chrono::seconds(29)});
  const auto listed =
      cluster().list(training_jobs(), {.namespace_name = "", .label_selector = "", .field_selector = ""},
                     [](const Json&) { return true; });
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, ExitCode::kUnavailable);
  EXPECT_EQ(listed.error().message,
            "~/.kube/config, context prod: cannot list trainingjobs.oarlock.dev: the list did not end within 5m, after "
            "220 objects; raise --request-timeout, or select fewer jobs with -n or -l");
  EXPECT_EQ(transport_->requests().size(), 11u);
}

TEST_F(ClusterRequests, RequestsSmallerPagesOfLargeObjects) {
  transport_->script({.status = 200, .pieces = {}, .failure = http::TransportErrorKind::kRefused});
  answer(200, {{"items", Json::array({job_named("a")})}});
  int seen = 0;
  const auto listed =
      cluster().list(kube::pods(), {.namespace_name = "team", .label_selector = "", .field_selector = ""},
                     [&](const Json&) { return ++seen > 0; });
  ASSERT_TRUE(listed) << listed.error().message;
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(transport_->requests().back().target, "/api/v1/namespaces/team/pods?limit=10");
}

TEST_F(ClusterRequests, BoundsDocumentsOfPods) {
  transport_->script({.status = 200, .pieces = {std::string(600, 'x'), std::string(600, 'x')}});
  const auto read = cluster().read_limited("/x", 1000, std::chrono::seconds(1));
  EXPECT_FALSE(read);
  transport_->script({.status = 200, .pieces = {"short"}});
  EXPECT_EQ(cluster().read_limited("/x", 1000, std::chrono::seconds(1)), "short");
}

TEST_F(ClusterRequests, ReadsThePositionOfAWaitingJob) {
  Job job;
  job.metadata.name = "bert";
  job.metadata.namespace_name = "team";
  job.status.phase = api::Phase::kPending;
  EXPECT_EQ(read_queue_position(cluster(), job), std::nullopt);
  EXPECT_TRUE(transport_->requests().empty()) << "a job without a queue";
  job.status.queue.emplace().name = "team-a";
  const auto entry = [](const std::string& name, const Json& position) {
    return Json{{"metadata", {{"name", name}}}, {"positionInClusterQueue", position}, {"positionInLocalQueue", 0}};
  };
  const std::string name = control::workload_name(job);
  answer(200, {{"items", Json::array({entry("other", 0), entry(name, 2)})}});
  EXPECT_EQ(read_queue_position(cluster(), job), 3);
  EXPECT_EQ(transport_->requests().back().target,
            "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/team-a/pendingworkloads?limit=1000");
  for (const Json& items : {Json::array(), Json::array({entry(name, -1)}), Json::array({entry(name, "x"), 7})}) {
    answer(200, {{"items", items}});
    EXPECT_EQ(read_queue_position(cluster(), job), std::nullopt) << items;
  }
  answer(403, status_body(403, "Forbidden", "localqueues.visibility.kueue.x-k8s.io is forbidden"));
  EXPECT_EQ(read_queue_position(cluster(), job), std::nullopt);
  job.status.phase = api::Phase::kSuspended;
  EXPECT_EQ(read_queue_position(cluster(), job), std::nullopt);
}

TEST_F(ClusterRequests, ReadsTheDomainOfTheTopology) {
  Job job;
  std::vector<PodView> pods(2);
  EXPECT_EQ(read_topology(cluster(), job, pods), "");
  job.spec.scheduling.topology.emplace() = {.key = "rack", .mode = api::TopologyMode::kExclusive};
  EXPECT_EQ(read_topology(cluster(), job, pods), "exclusive domain of rack");
  EXPECT_TRUE(transport_->requests().empty()) << "no pod has a node";
  pods[1].node = "n1";
  answer(200, {{"metadata", {{"labels", {{"rack", "r7"}}}}}});
  EXPECT_EQ(read_topology(cluster(), job, pods), "exclusive domain of rack: r7");
  EXPECT_EQ(transport_->requests().back().target, "/api/v1/nodes/n1");
  answer(403, status_body(403, "Forbidden", "nodes \"n1\" is forbidden"));
  EXPECT_EQ(read_topology(cluster(), job, pods), "exclusive domain of rack");
  job.spec.scheduling.topology.reset();
  job.spec.pod_template = R"({"metadata": {"annotations": {"kueue.x-k8s.io/podset-preferred-topology": "block"}}})";
  answer(200, {{"metadata", {{"labels", {{"block", "b1"}}}}}});
  EXPECT_EQ(read_topology(cluster(), job, pods), "preferred domain of block: b1");
}

// The API server rejects a new object with a resourceVersion, and a server-side apply with managedFields.
TEST(SubmittedObjects, HaveNoFieldsOfTheServer) {
  const Json labels = {{"version", "1.0"}};
  const Json object = {{"apiVersion", "oarlock.dev/v1alpha1"},
                       {"metadata",
                        {{"name", "j"},
                         {"labels", labels},
                         {"uid", "5c0a"},
                         {"resourceVersion", "7"},
                         {"generation", 1},
                         {"creationTimestamp", "2026-11-24T10:00:00Z"},
                         {"managedFields", Json::array({Json::object()})}}},
                       {"spec", {{"nodes", 2}}},
                       {"status", {{"phase", "Running"}}}};
  EXPECT_EQ(without_server_fields(object), Json({{"apiVersion", "oarlock.dev/v1alpha1"},
                                                 {"metadata", {{"name", "j"}, {"labels", labels}}},
                                                 {"spec", {{"nodes", 2}}}}));
  for (const Json& other : {Json(7), Json::object(), Json{{"metadata", "x"}}})
    EXPECT_EQ(without_server_fields(other), other);
}

}  // namespace
}  // namespace oarlock::cli
