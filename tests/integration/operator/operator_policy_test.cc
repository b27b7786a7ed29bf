// Policies of a job against a real kube-apiserver with the real controllers: its end, the cleanup of its objects, and
// reports of the kubelet and the scheduler about its pods.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>

#include "operator/core/desired.h"
#include "tests/support/builders.h"
#include "tests/support/job_world.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class Policies : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    world_ = std::make_unique<JobWorld>(*server_, server_->make_namespace());
    operator_ = std::make_unique<OperatorProcess>(
        std::vector<std::string>{"--kubeconfig", server_->kubeconfig(), "--namespace", world_->namespace_name()});
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << "---- the operator's log\n" << operator_->log();
    operator_.reset();
  }

  void create(const std::string& name, Json spec) {
    if (!spec.contains("nodes")) spec["nodes"] = 2;
    if (!spec.contains("template"))
      spec["template"] = {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}}}}};
    world_->call("POST", world_->jobs(),
                 {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", name}}}, {"spec", spec}});
  }
  // For values that are nested too deeply for a tree.
  void create_text(const std::string& name, const std::string& pod_template, const std::string& trainer) {
    const std::string job =
        fmt::format(R"({{"apiVersion":"{}","kind":"{}","metadata":{{"name":"{}"}},"spec":{{"nodes":2,)"
                    R"("template":{},"trainer":{}}}}})",
                    kApiVersion, kKind, name, pod_template, trainer);
    const auto response = server_->transport().send(
        {.method = "POST", .target = world_->jobs(), .body = job, .content_type = "application/json"},
        std::chrono::seconds(60), {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 201) << response->body;
  }
  static std::string nested_lists(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }
  static constexpr char kTemplate[] = R"({"spec":{"containers":[{"name":"trainer","image":"example.invalid/t"}]}})";
  // Waits until both pods of an attempt exist.
  void set_group(const std::string& name, int attempt, const Json& first, const Json& second) {
    const std::string prefix = name + "-" + std::to_string(attempt) + "-";
    world_->wait("pods of attempt " + std::to_string(attempt),
                 [&] { return has_pod(prefix + "0") && has_pod(prefix + "1"); });
    world_->set_pod(prefix + "0", first);
    world_->set_pod(prefix + "1", second);
  }
  // Rank 0 leaves its step in the termination message, as the launcher writes it.
  void fail_at_step(const std::string& name, int attempt, int step) {
    set_group(name, attempt, pod_running(), pod_running());
    world_->set_pod(fmt::format("{}-{}-0", name, attempt),
                    pod_ended(1, fmt::format(R"({{"rank":0,"step":{},"checkpointStep":{},"reason":"Failed",)"
                                             R"("message":"m"}})",
                                             step, step - 1)));
  }
  bool has_pod(const std::string& name) { return exists(world_->pods() + "/" + name); }
  bool exists(const std::string& target) { return server_->call("GET", target).status != 404; }
  std::string service(const std::string& name) const {
    return "/api/v1/namespaces/" + world_->namespace_name() + "/services/" + name;
  }
  Json condition(const std::string& name, const std::string& type) {
    for (const Json& one : world_->status(name).value("conditions", Json::array())) {
      if (one["type"] == type) return one;
    }
    return Json::object();
  }
  void set_quota(const std::string& resource, int count) {
    const std::string quotas = "/api/v1/namespaces/" + world_->namespace_name() + "/resourcequotas";
    world_->call("POST", quotas,
                 {{"apiVersion", "v1"},
                  {"kind", "ResourceQuota"},
                  {"metadata", {{"name", "quota"}}},
                  {"spec", {{"hard", {{resource, std::to_string(count)}}}}}});
    world_->wait("the quota", [&] {
      return world_->call("GET", quotas + "/quota")
          .value("/status/hard"_json_pointer, Json::object())
          .contains(resource);
    });
  }
  // Runs another job to its end, which gives the operator time to act by mistake.
  void let_time_pass() {
    create("other", {});
    set_group("other", 0, pod_running(), pod_running());
    world_->wait_for_phase("other", "Running");
  }

  static inline std::unique_ptr<ApiServer> server_;
  std::unique_ptr<JobWorld> world_;
  std::unique_ptr<OperatorProcess> operator_;
};

// The profile changes ten times while the job restarts ten times, and once with another process of the operator.
TEST_F(Policies, ChangedProfileReachesJobAtItsResumeOnly) {
  const std::string profiles =
      "/apis/oarlock.dev/v1alpha1/namespaces/" + world_->namespace_name() + "/trainingprofiles";
  const auto spec_of = [](int value) -> Json {
    const Json variable = {{"name", "VALUE"}, {"value", std::to_string(value)}};
    return {{"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"env", Json::array({variable})}}}}}}}}};
  };
  const auto value_of = [&](const std::string& pod) -> std::string {
    const Json found = world_->pod(pod);
    for (const Json& variable : found["spec"]["containers"][0]["env"]) {
      if (variable["name"] == "VALUE") return variable["value"];
    }
    return "none";
  };
  create("j", {{"nodes", 1}, {"profile", "team"}, {"failurePolicy", {{"maxRestarts", 100}, {"backoffSeconds", 0}}}});
  world_->wait("the reason", [&] { return world_->has_condition("j", "Pending", "True", "ProfileNotFound"); });
  world_->call("POST", profiles,
               {{"apiVersion", kApiVersion},
                {"kind", "TrainingProfile"},
                {"metadata", {{"name", "team"}}},
                {"spec", spec_of(0)}});
  for (int change = 1; change <= 10; ++change) {
    const std::string pod = fmt::format("j-{}-0", change - 1);
    world_->wait("pod " + pod, [&] { return has_pod(pod); });
    EXPECT_EQ(value_of(pod), "0") << pod;
    world_->set_pod(pod, pod_running());
    world_->wait_for_phase("j", "Running");
    world_->call("PATCH", profiles + "/team", {{"spec", spec_of(change)}});
    if (change == 5) {
      operator_.reset();
      operator_ = std::make_unique<OperatorProcess>(
          std::vector<std::string>{"--kubeconfig", server_->kubeconfig(), "--namespace", world_->namespace_name()});
    }
    world_->set_pod(pod, pod_ended(1));
  }
  world_->wait("the last attempt", [&] { return has_pod("j-10-0"); });
  EXPECT_EQ(value_of("j-10-0"), "0");
  world_->patch_job("j", {{"spec", {{"suspend", true}}}});
  world_->wait("the condition Suspended", [&] { return world_->has_condition("j", "Suspended", "True"); });
  world_->patch_job("j", {{"spec", {{"suspend", false}}}});
  world_->wait("the resumed attempt", [&] { return has_pod("j-11-0"); });
  EXPECT_EQ(value_of("j-11-0"), "10");
  EXPECT_EQ(world_->status("j")["profile"]["generation"], 11);
}

TEST_F(Policies, DeletesJobAfterTimeToLive) {
  create("j", {{"ttlSecondsAfterFinished", 1}});
  set_group("j", 0, pod_ended(0), pod_ended(0));
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  world_->wait("the end of what it owns",
               [&] { return !has_pod("j-0-0") && !has_pod("j-0-1") && !exists(service("j")); });
}

TEST_F(Policies, TheRoleOfTheManifestMayDeleteJobs) {
  server_->apply(test::source_path("manifests/install.yaml"));
  const Json attributes = {{"verb", "delete"}, {"group", kGroup}, {"resource", kPlural}, {"namespace", "default"}};
  const Json answer = world_->call(
      "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      {{"apiVersion", "authorization.k8s.io/v1"},
       {"kind", "SubjectAccessReview"},
       {"spec",
        {{"user", "system:serviceaccount:oarlock-system:oarlock-operator"}, {"resourceAttributes", attributes}}}});
  EXPECT_EQ(answer["status"]["allowed"], true);
}

TEST_F(Policies, ActiveDeadlineFailsJobAndDeletesPods) {
  create("j", {{"activeDeadlineSeconds", 8}});  // enough for the pods, which are set below
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Failed");
  EXPECT_EQ(condition("j", "Failed")["reason"], "DeadlineExceeded");
  EXPECT_EQ(world_->status("j")["restarts"]["total"], 0);
  world_->wait_for_pods({});
}

TEST_F(Policies, CleansUpPodsByPolicy) {
  create("all", {{"cleanPodPolicy", "All"}});
  create("none", {{"cleanPodPolicy", "None"}, {"failurePolicy", {{"maxRestarts", 0}}}});
  set_group("all", 0, pod_ended(0), pod_ended(0));
  set_group("none", 0, pod_running(), pod_ended(1));
  world_->wait_for_phase("all", "Complete");
  world_->wait_for_phase("none", "Failed");
  world_->wait("the end of the pods", [&] { return !has_pod("all-0-0") && !has_pod("all-0-1"); });
  world_->wait("the end of the Service", [&] { return !exists(service("all")); });
  let_time_pass();
  EXPECT_EQ(world_->live_pods().count("none-0-0"), 1U);
  EXPECT_TRUE(has_pod("none-0-1"));
  EXPECT_TRUE(exists(service("none")));
}

TEST_F(Policies, AJobOfAnotherManagerIsLeftAlone) {
  create("j", {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  let_time_pass();
  EXPECT_EQ(world_->status("j"), Json::object());
  EXPECT_FALSE(has_pod("j-0-0"));
  EXPECT_FALSE(exists(service("j")));
}

TEST_F(Policies, Rank0AloneMakesTheJobComplete) {
  create("j", {{"successPolicy", "Rank0"}});
  set_group("j", 0, pod_running(), pod_running());
  world_->set_pod("j-0-0", pod_ended(0));  // last, because the operator then deletes the other pod
  world_->wait_for_phase("j", "Complete");
  world_->wait_for_pods({});
}

TEST_F(Policies, RulesDecideAboutRestarts) {
  const Json rules = {{{"action", "Fail"}, {"onExitCodes", {{"operator", "In"}, {"values", {42}}}}}};
  create("j", {{"failurePolicy", {{"maxRestarts", 1}, {"backoffSeconds", 0}, {"rules", rules}}}});
  Json preempted = pod_ended(143);
  Json disruption = pod_condition("DisruptionTarget", true);
  disruption["reason"] = "PreemptionByScheduler";
  preempted["conditions"].push_back(disruption);
  set_group("j", 0, pod_running(), preempted);
  world_->wait("attempt 1", [&] { return world_->status("j").value("attempt", 0) == 1; });
  EXPECT_EQ(world_->status("j")["restarts"]["total"], 1);
  EXPECT_EQ(world_->status("j")["restarts"]["charged"], 0);
  EXPECT_EQ(world_->status("j")["restarts"]["reasons"], Json::parse(R"([{"reason": "Disrupted", "count": 1}])"));
  // Its metrics are computed from its cache, which receives the status a moment later.
  world_->wait("the count in the metrics",
               [&] { return operator_->metric("trainingjob_restarts_total", {R"(reason="Disrupted")"}) == 1; });
  set_group("j", 1, pod_running(), pod_ended(42));
  world_->wait_for_phase("j", "Failed");
  EXPECT_EQ(condition("j", "Failed")["reason"], "FailurePolicy");
}

TEST_F(Policies, FailuresWithoutProgressFailTheJobWithTheReason) {
  create("j", {{"failurePolicy", {{"maxRestarts", 100}, {"maxFailuresAtStep", 3}, {"backoffSeconds", 0}}}});
  for (int attempt = 0; attempt < 3; ++attempt) fail_at_step("j", attempt, 1200);
  world_->wait_for_phase("j", "Failed");
  EXPECT_EQ(condition("j", "Failed")["reason"], "NoProgress");
  EXPECT_THAT(condition("j", "Failed")["message"], HasSubstr("failed 3 times without progress beyond step 1200"));
  EXPECT_EQ(world_->status("j")["restarts"]["charged"], 1);
  EXPECT_EQ(world_->status("j")["restarts"]["afterProgress"]["failures"], 3);
}

TEST_F(Policies, RestartsAfterProgressAreNotCharged) {
  create("j", {{"failurePolicy", {{"maxRestarts", 1}, {"backoffSeconds", 0}}}});
  for (int attempt = 0; attempt < 10; ++attempt) fail_at_step("j", attempt, 10 * (attempt + 1));
  set_group("j", 10, pod_ended(0), pod_ended(0));
  world_->wait_for_phase("j", "Complete");
  EXPECT_EQ(world_->status("j")["restarts"]["total"], 10);
  EXPECT_EQ(world_->status("j")["restarts"]["charged"], 0);
  EXPECT_EQ(world_->status("j")["restarts"]["afterProgress"]["count"], 10);
}

// The API server stores integers that fit no 64 bits as doubles: 18446744073709551615 as 18446744073709552000.
TEST_F(Policies, NumbersOfOneJobHideNoOtherJob) {
  const std::map<std::string, std::pair<Json, std::string>> numbers = {
      {"wide", {18446744073709551615ULL, "18446744073709552000"}},
      {"low", {-9300000000000000000.0, "-9300000000000000000"}},
      {"large", {1e300, "1e+300"}},
      {"tiny", {5e-324, "5e-324"}}};
  for (const auto& [name, number] : numbers) create(name, {{"trainer", {{"seed", number.first}}}});
  create("after", {});
  set_group("after", 0, pod_running(), pod_running());
  world_->wait_for_phase("after", "Running");
  for (const auto& [name, number] : numbers) {
    world_->wait("the pods of " + name, [&] { return has_pod(name + "-0-0") && has_pod(name + "-0-1"); });
    const Json pod = world_->call("GET", world_->pods() + "/" + name + "-0-0");
    EXPECT_EQ(pod["metadata"]["annotations"][kAnnotationConfig], R"({"seed":)" + number.second + "}");
  }
  EXPECT_EQ(operator_->metric("oarlock_cache_unreadable_objects_total"), 0);
  EXPECT_EQ(operator_->get("/readyz").status, 200);
}

// The API server accepts up to 10,000 levels of JSON.
TEST_F(Policies, LargeConfigurationsDoNotAffectOtherJobs) {
  create_text("deep", kTemplate, R"({"deep":)" + nested_lists(9900) + "}");
  create("long", {{"trainer", {{"text", std::string(200000, 'x')}}}});
  create("after", {});
  for (const std::string name : {"deep", "long", "after"})
    world_->wait("the pods of " + name, [&] { return has_pod(name + "-0-0") && has_pod(name + "-0-1"); });
}

TEST_F(Policies, ReportsUnreadableJobOnItself) {
  create_text("j", R"({"deep":)" + nested_lists(9900) + "," + std::string(kTemplate).substr(1), "{}");
  create("after", {});
  set_group("after", 0, pod_running(), pod_running());
  world_->wait_for_phase("after", "Running");
  world_->wait("the condition", [&] { return condition("j", "Unreadable").value("status", "") == "True"; });
  EXPECT_EQ(condition("j", "Unreadable")["reason"], "InvalidObject");
  EXPECT_THAT(condition("j", "Unreadable")["message"].get<std::string>(),
              HasSubstr("spec.template: nested deeper than 100 levels; the operator ignores the job"));
  world_->wait("the event", [&] {
    const std::vector<std::string> reasons = world_->event_reasons("j");
    return std::ranges::count(reasons, "Unreadable") == 1;
  });
  EXPECT_FALSE(has_pod("j-0-0"));
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  // The same name can be used again.
  world_->delete_job("j");
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  EXPECT_TRUE(condition("j", "Unreadable").empty());
}

TEST_F(Policies, ForegroundDeletionDeletesPodsFirst) {
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  world_->call("DELETE", world_->jobs() + "/j", {{"propagationPolicy", "Foreground"}});
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  EXPECT_FALSE(has_pod("j-0-0")) << "they went first";
  EXPECT_FALSE(has_pod("j-0-1"));
  let_time_pass();
  EXPECT_FALSE(has_pod("j-0-0")) << "and nothing is made again";
}

TEST_F(Policies, OrphanedPodsBlockNewJobOfSameName) {
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  world_->call("DELETE", world_->jobs() + "/j", {{"propagationPolicy", "Orphan"}});
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  let_time_pass();
  EXPECT_EQ(world_->live_pods().count("j-0-0") + world_->live_pods().count("j-0-1"), 2U);
  EXPECT_FALSE(world_->call("GET", world_->pods() + "/j-0-0")["metadata"].contains("ownerReferences"));
  create("j", {});
  world_->wait("word of the names", [&] { return condition("j", "Pending").value("reason", "") == "NameTaken"; });
  EXPECT_EQ(world_->live_pods().count("j-0-0"), 1U);
}

TEST_F(Policies, WaitsForCapacityWithoutCharge) {
  create("j", {{"failurePolicy", {{"maxRestarts", 0}, {"backoffSeconds", 1}}}});
  Json unschedulable = {{"conditions", {pod_condition("PodScheduled", false)}}};
  unschedulable["conditions"][0].update({{"reason", "Unschedulable"}, {"message", "0/3 nodes are available"}});
  set_group("j", 0, unschedulable,
            pod_ended(75, R"({"rank":1,"step":0,"checkpointStep":-1,"reason":"RendezvousTimeout","message":""})"));
  // The node of a pod of the next attempt does not admit it.
  const Json rejected = {{"phase", "Failed"}, {"reason", "OutOfcpu"}, {"message", "Node didn't have enough cpu"}};
  set_group("j", 1, pod_running(), rejected);
  set_group("j", 2, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  const Json status = world_->status("j");
  EXPECT_EQ(status["attempts"][0]["reason"], "Unschedulable");
  EXPECT_EQ(status["attempts"][1]["reason"], "OutOfcpu");
  EXPECT_EQ(status["restarts"]["total"], 2);
  EXPECT_EQ(status["restarts"].value("charged", 0), 0);
}

// A webhook that does not respond, and a LimitRange that is created while the job runs.
TEST_F(Policies, AdmissionProblemsAreReportedAndRetried) {
  create("j", {{"resourcesPerNode", {{"requests", {{"memory", "1Gi"}}}}}});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  const std::string limits = "/api/v1/namespaces/" + world_->namespace_name() + "/limitranges";
  world_->call("POST", limits,
               {{"apiVersion", "v1"},
                {"kind", "LimitRange"},
                {"metadata", {{"name", "defaults"}}},
                {"spec", {{"limits", {{{"type", "Container"}, {"default", {{"memory", "512Mi"}}}}}}}}});
  world_->set_pod("j-0-1", pod_ended(1));
  world_->wait("the refusal", [&] {
    return condition("j", "Restarting").value("message", "").find("the API server refused: ") != std::string::npos;
  });
  world_->call("DELETE", limits + "/defaults");
  const std::string hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
  world_->call(
      "POST", hooks,
      {{"apiVersion", "admissionregistration.k8s.io/v1"},
       {"kind", "ValidatingWebhookConfiguration"},
       {"metadata", {{"name", "down"}}},
       {"webhooks",
        {{{"name", "down.example.com"},
          {"admissionReviewVersions", {"v1"}},
          {"sideEffects", "None"},
          {"clientConfig", {{"url", "https://127.0.0.1:1/x"}}},
          {"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", world_->namespace_name()}}}}},
          {"rules",
           {{{"apiGroups", {""}}, {"apiVersions", {"v1"}}, {"operations", {"CREATE"}}, {"resources", {"pods"}}}}}}}}});
  create("other", {});
  world_->wait("the webhook's error", [&] {
    const Json pending = condition("other", "Pending");
    return pending.value("reason", "") == "CreateRefused" &&
           pending.value("message", "").find("failed calling webhook") != std::string::npos;
  });
  world_->call("DELETE", hooks + "/down");
  set_group("other", 0, pod_running(), pod_running());
}

// A quota on count/pods counts the failed pod of attempt 0, which is kept for its log.
TEST_F(Policies, QuotaThatCountsEndedPodsDoesNotBlockNextAttempt) {
  set_quota("count/pods", 2);
  create("j", {{"failurePolicy", {{"backoffSeconds", 1}}}});
  set_group("j", 0, pod_running(), pod_ended(1));
  world_->wait("the refusal", [&] {
    const Json restarting = condition("j", "Restarting");
    return restarting.value("message", "").find("which this quota counts, are deleted 30 s after") != std::string::npos;
  });
  EXPECT_TRUE(has_pod("j-0-1"));
  set_group("j", 1, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  EXPECT_FALSE(has_pod("j-0-1"));
  EXPECT_THAT(world_->event_reasons("j"), Contains("LogsNotKept"));
}

// A quota of three pods, and two jobs of two: the second one must not keep the pod that it got.
TEST_F(Policies, GroupThatCannotBePlacedReleasesItsRoom) {
  set_quota("pods", 3);
  create("first", {});
  set_group("first", 0, pod_running(), pod_running());
  create("second", {{"scheduling", {{"pendingTimeoutSeconds", 3}}}});
  world_->wait("its release", [&] { return condition("second", "Restarting").value("status", "") == "True"; });
  const Json record = world_->status("second")["attempts"][0];
  EXPECT_EQ(record["reason"], "NotPlaced");
  EXPECT_THAT(record["message"], HasSubstr("not all pods were placed within 3 s"));
  EXPECT_THAT(record["message"], HasSubstr("exceeded quota: quota"));
  create("third", {{"nodes", 1}});
  world_->wait("a pod in the room that was released", [&] { return has_pod("third-0-0"); });
  for (const char* job : {"first", "third"}) world_->call("DELETE", world_->jobs() + "/" + job);
  world_->wait("both pods of a later attempt", [&] {
    const std::string prefix = fmt::format("second-{}-", world_->status("second").value("attempt", 0));
    return has_pod(prefix + "0") && has_pod(prefix + "1");
  });
  set_group("second", world_->status("second")["attempt"], pod_running(), pod_running());
  world_->wait_for_phase("second", "Running");
  EXPECT_EQ(world_->status("second")["restarts"].value("charged", 0), 0);
}

// Two domains of two nodes with room for two pods each, and the real scheduler. Other tests' pods do not tolerate the
// nodes.
TEST_F(Policies, ExclusiveDomainsHaveOneJobEach) {
  const Json room = {{"cpu", "8"}, {"memory", "8Gi"}, {"pods", "2"}};
  std::map<std::string, std::string> domain_of;
  for (const char* name : {"a-1", "a-2", "b-1", "b-2"}) {
    domain_of[name] = std::string(name, 1);
    world_->call("POST", "/api/v1/nodes",
                 {{"metadata", {{"name", name}, {"labels", {{"example.com/rack", domain_of[name]}}}}},
                  {"spec", {{"taints", {{{"key", "test"}, {"value", "racks"}, {"effect", "NoSchedule"}}}}}},
                  {"status", {{"capacity", room}, {"allocatable", room}}}});
  }
  const Json pod_template = {{"spec",
                              {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}},
                               {"tolerations", {{{"operator", "Exists"}}}}}}};
  const Json exclusive = {{"topology", {{"key", "example.com/rack"}, {"mode", "Exclusive"}}}};
  const auto domains = [&](const std::string& job) {
    std::multiset<std::string> out;
    for (const char* rank : {"0", "1"}) {
      const std::string pod = job + "-0-" + rank;
      if (!has_pod(pod)) continue;
      const std::string node = world_->call("GET", world_->pods() + "/" + pod)["spec"].value("nodeName", "");
      out.insert(node.empty() ? "" : domain_of.at(node));
    }
    return out;
  };
  for (const char* job : {"one", "two"}) create(job, {{"template", pod_template}, {"scheduling", exclusive}});
  const auto has_domain = [&](const std::string& job) {
    return domains(job).size() == 2 && !domains(job).contains("");
  };
  world_->wait("nodes for both jobs", [&] { return has_domain("one") && has_domain("two"); });
  EXPECT_EQ(domains("one").count(*domains("one").begin()), 2U);
  EXPECT_EQ(domains("two").count(*domains("two").begin()), 2U);
  EXPECT_NE(*domains("one").begin(), *domains("two").begin());
  // There is room for four more pods, but no domain without another job, and none that permits another job.
  create("three", {{"template", pod_template}, {"scheduling", exclusive}});
  create("four", {{"template", pod_template}});
  for (const char* job : {"three", "four"}) {
    world_->wait("the scheduler's message",
                 [&] { return condition(job, "Pending").value("reason", "") == "Unschedulable"; });
    EXPECT_THAT(condition(job, "Pending")["message"], HasSubstr("anti-affinity"));
  }
  world_->call("DELETE", world_->jobs() + "/one");
  // As a kubelet confirms the end of pods.
  for (const char* pod : {"one-0-0", "one-0-1"})
    world_->call("DELETE", world_->pods() + "/" + pod, {{"gracePeriodSeconds", 0}});
  world_->wait("the domain of the deleted job", [&] { return has_domain("three") || has_domain("four"); });
  for (const auto& [node, domain] : domain_of) world_->call("DELETE", "/api/v1/nodes/" + node);
}

// Two nodes, on which one job fails twice on the first one and then on the other, and the real scheduler. The pods of
// other tests do not tolerate the nodes.
TEST_F(Policies, PodsAvoidNodesOnWhichTheirJobHasFailed) {
  const Json room = {{"cpu", "8"}, {"memory", "8Gi"}, {"pods", "10"}};
  for (const char* name : {"c-1", "c-2"}) {
    world_->call("POST", "/api/v1/nodes",
                 {{"metadata", {{"name", name}, {"labels", {{"example.com/rack", "c"}}}}},
                  {"spec", {{"taints", {{{"key", "test"}, {"value", "bad-nodes"}, {"effect", "NoSchedule"}}}}}},
                  {"status", {{"capacity", room}, {"allocatable", room}}}});
  }
  const Json rack = {{"key", "example.com/rack"}, {"operator", "In"}, {"values", {"c"}}};
  const Json affinity = {
      {"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", {{{"matchExpressions", {rack}}}}}}}};
  const Json pod_template = {{"spec",
                              {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}},
                               {"affinity", {{"nodeAffinity", affinity}}},
                               {"tolerations", {{{"operator", "Exists"}}}}}}};
  create("j", {{"nodes", 1},
               {"template", pod_template},
               {"scheduling", {{"pendingTimeoutSeconds", 3}}},
               {"failurePolicy", {{"maxRestarts", 9}, {"backoffSeconds", 0}}}});
  const auto node_of = [&](int attempt) {
    const std::string pod = fmt::format("{}/j-{}-0", world_->pods(), attempt);
    std::string node;
    world_->wait(fmt::format("a node for attempt {}", attempt), [&] {
      const Reply reply = server_->call("GET", pod);  // it may be deleted and created again
      if (reply.status == 200) node = reply.body["spec"].value("nodeName", "");
      return !node.empty();
    });
    return node;
  };
  const auto fail = [&](int attempt, int exit_code) {
    const std::string pod = fmt::format("j-{}-0", attempt);
    world_->set_pod(pod, pod_running());
    world_->wait_for_phase("j", "Running");
    world_->set_pod(pod, pod_ended(exit_code));
  };
  const std::string first = node_of(0);
  fail(0, 79);  // a failed device
  const std::string second = node_of(1);
  EXPECT_NE(second, first);
  EXPECT_EQ(world_->status("j")["badNodes"][0]["name"], first);
  EXPECT_EQ(world_->status("j")["badNodes"][0]["avoidance"], "Required");
  fail(1, 1);
  EXPECT_EQ(node_of(2), second) << "other nodes are only preferred";
  fail(2, 1);
  // No node is left, so that the pod is created again until it can be placed.
  EXPECT_THAT((std::vector<std::string>{first, second}), Contains(node_of(3)));
  EXPECT_EQ(world_->status("j")["attempt"], 3) << "the avoidance has caused no further attempt";
  world_->wait("the events", [&] {
    const std::vector<std::string> reasons = world_->event_reasons("j");
    return std::ranges::count(reasons, "AvoidingNode") > 0 && std::ranges::count(reasons, "NodeAvoidanceRelaxed") > 0;
  });
  world_->wait("the metric",
               [&] { return operator_->metric("trainingjob_avoided_nodes", {R"(trainingjob="j")"}) == 2; });
  for (const char* name : {"c-1", "c-2"}) world_->call("DELETE", std::string("/api/v1/nodes/") + name);
}

TEST_F(Policies, PodWithoutTheLabelRemainsPartOfTheGroup) {
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  const auto label = [&](const Json& value) {
    world_->call("PATCH", world_->pods() + "/j-0-1", {{"metadata", {{"labels", {{kLabelJobName, value}}}}}});
  };
  const auto is_reported = [&] { return condition("j", "PodsUnlabeled").value("status", "") == "True"; };
  label(nullptr);
  world_->wait("the condition", is_reported);
  EXPECT_THAT(condition("j", "PodsUnlabeled")["message"], HasSubstr("pod j-0-1 does not have the label"));
  label("j");
  world_->wait("its end", [&] { return !is_reported(); });
  label("another");
  world_->wait("the condition", is_reported);
  EXPECT_EQ(world_->status("j")["attempt"], 0);
  EXPECT_EQ(world_->phase("j"), "Running");
  world_->set_pod("j-0-1", pod_ended(1));  // no watch reports it
  world_->set_pod("j-0-0", pod_running("10.0.0.9"));
  set_group("j", 1, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  EXPECT_FALSE(is_reported());
  EXPECT_EQ(world_->status("j")["attempts"][0]["exitCode"], 1);
}

TEST_F(Policies, ReportsPodsRejectedByPodSecurity) {
  world_->call("PATCH", "/api/v1/namespaces/" + world_->namespace_name(),
               {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
  const Json container = {
      {"name", "trainer"},
      {"image", "example.invalid/t"},
      {"securityContext", {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", {"ALL"}}}}}}};
  const Json pod = {{"securityContext", {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                    {"containers", {container}}};
  create("good", {{"template", {{"spec", pod}}}, {"trainer", {{"task", "mlp"}}}});
  set_group("good", 0, pod_running(), pod_running());
  world_->wait_for_phase("good", "Running");
  create("bad", {});
  world_->wait("the refusal", [&] { return condition("bad", "Pending").value("reason", "") == "CreateRefused"; });
  EXPECT_THAT(condition("bad", "Pending")["message"], HasSubstr("violates PodSecurity \"restricted"));
}

}  // namespace
}  // namespace oarlock::test
