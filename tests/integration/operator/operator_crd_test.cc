// The CRD in a real kube-apiserver: the objects that admission rejects and its messages, defaults, and the columns of
// kubectl; and the transport over real TLS.
#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "api/rules.h"
#include "common/clock.h"
#include "http/client/credentials.h"
#include "http/client/transport.h"
#include "kube/auth/kubeconfig.h"
#include "kube/client/client.h"
#include "tests/support/api_server.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class Crd : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<ApiServer>(ApiServer::Parts::kApiOnly);
    server_->apply(test::source_path("manifests/crd"));
    ASSERT_TRUE(eventually([] { return server_->call("GET", "/apis/oarlock.dev/v1alpha1/trainingjobs").ok(); }));
  }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override { ns_ = server_->make_namespace(); }

  static Json valid() {
    return Json::parse(R"({"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j"},
      "spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}}})");
  }
  std::string jobs() const { return "/apis/oarlock.dev/v1alpha1/namespaces/" + ns_ + "/trainingjobs"; }
  Reply create(const Json& job) { return server_->call("POST", jobs() + "?fieldValidation=Strict", job); }
  Reply patch(const std::string& path, const Json& change) { return server_->call("PATCH", jobs() + path, change); }

  static inline std::unique_ptr<ApiServer> server_;
  std::string ns_;
};

struct Refusal {
  std::string pointer;
  Json value;
  std::string message;
};

TEST_F(Crd, RejectsInvalidJobsWithAReason) {
  using namespace api::rules;
  const Refusal refusals[] = {
      {"/metadata/name", "9lives", kName},
      {"/metadata/name", "dotted.name", kName},
      {"/metadata/name", std::string(57, 'a'), kNameLength},
      {"/spec/nodes", 0, "spec.nodes"},
      {"/spec/elastic", {{"minNodes", 3}}, kElasticBounds},
      {"/spec/elastic", {{"minNodes", 0}}, "spec.elastic.minNodes"},
      {"/spec/nodes", 5000, "spec.nodes"},
      {"/spec/nodes", "two", "spec.nodes"},
      {"/spec/processesPerNode", 0, "spec.processesPerNode"},
      {"/spec/rendezvous", {{"port", 9400}}, kPortIsMetrics},
      {"/spec/rendezvous", {{"port", 70000}}, "spec.rendezvous.port"},
      {"/spec/failurePolicy", {{"maxRestarts", -1}}, "maxRestarts"},
      {"/spec/template/spec/containers", {{{"name", "main"}, {"image", "i"}}}, kTrainer},
      {"/spec/template/spec/restartPolicy", "Always", kRestartPolicy},
      {"/spec/template/spec/containers",
       {{{"name", "trainer"}, {"image", "i"}, {"restartPolicy", "Always"}}},
       kTrainerRestarts},
      {"/spec/template/spec/containers",
       {{{"name", "trainer"},
         {"image", "i"},
         {"restartPolicy", "Never"},
         {"restartPolicyRules", {{{"action", "Restart"}}}}}},
       kTrainerRestarts},
      {"/spec/template/spec/hostname", "mine", kHostname},
      {"/spec/template/spec/volumes", {{{"name", "oarlock-shm"}, {"emptyDir", Json::object()}}}, kVolumeName},
      {"/spec/template/spec/containers",
       {{{"name", "trainer"}, {"image", "i"}},
        {{"name", "side"}, {"image", "i"}, {"ports", {{{"containerPort", 29500}}}}}},
       kPortTaken},
      {"/spec",
       {{"nodes", 2}, {"rendezvous", {{"port", 65535}}}, {"failurePolicy", {{"restartScope", "Rank"}}}},
       kPortAfter},
      {"/spec",
       {{"nodes", 2}, {"rendezvous", {{"port", 9399}}}, {"failurePolicy", {{"restartScope", "Rank"}}}},
       kPortAfter},
      {"/spec", {{"nodes", 2}, {"rendezvous", {{"port", 65534}}}, {"preflight", Json::object()}}, kPortAfter},
      {"/spec", {{"nodes", 2}, {"rendezvous", {{"port", 9398}}}, {"preflight", Json::object()}}, kPortAfter},
      {"/spec/preflight", {{"timeoutSeconds", 59}}, "preflight.timeoutSeconds"},
      {"/spec/failurePolicy", {{"rules", {{{"action", "Fail"}}}}}, kOneRequirement},
      {"/spec/failurePolicy", {{"rules", {{{"action", "Ignore"}, {"onPodReasons", {"Evicted"}}}}}}, kIgnoreNeedsExit},
      {"/spec/failurePolicy",
       {{"rules", {{{"action", "Fail"}, {"onExitCodes", {{"operator", "In"}, {"values", {0}}}}}}}},
       "greater than or equal to 1"},
      {"/spec/failurePolicy",
       {{"rules", {{{"action", "Fail"}, {"onPodConditions", {{{"type", "Ready"}}}}}}}},
       "DisruptionTarget"},
      {"/spec/failurePolicy", {{"backoffSeconds", 4000}}, "backoffSeconds"},
      {"/spec/managedBy", "me", kManagedByForm},
      {"/spec/cleanPodPolicy", "Some", "cleanPodPolicy"},
      {"/spec/successPolicy", "Rank1", "successPolicy"},
      {"/spec/stallPolicy", {{"timeoutSeconds", 0}}, "stallPolicy.timeoutSeconds"},
      {"/spec/activeDeadlineSeconds", 0, "activeDeadlineSeconds"},
      {"/spec/ttlSecondsAfterFinished", -1, "ttlSecondsAfterFinished"},
      {"/spec/ndoes", 2, "ndoes"},
  };
  for (const Refusal& refusal : refusals) {
    Json job = valid();
    job[Json::json_pointer(refusal.pointer)] = refusal.value;
    const Reply reply = create(job);
    EXPECT_THAT(reply.status, ::testing::AnyOf(422, 400)) << refusal.pointer << " " << refusal.value;
    EXPECT_THAT(reply.message(), HasSubstr(refusal.message)) << refusal.pointer << " " << refusal.value;
  }
  Json side = valid();
  side["metadata"]["name"] = "side";
  side["spec"]["template"]["spec"]["containers"].push_back(
      {{"name", "side"}, {"image", "i"}, {"ports", {{{"containerPort", 29500}}}}});
  side["spec"]["profile"] = "";
  EXPECT_EQ(create(side).status, 422);
  side["spec"]["profile"] = "gpus";
  EXPECT_EQ(create(side).status, 201) << "the profile may have another rendezvous.port";
  Json two_names = valid();
  two_names["metadata"]["name"] = std::string(56, 'a');
  two_names["spec"]["nodes"] = 10;  // the last rank has one digit: fits
  EXPECT_EQ(create(two_names).status, 201);
}

// A default that the API server sets would take precedence over the value of a profile.
TEST_F(Crd, SetsOnlyDefaultsThatNoProfileHasAndKeepsUnknownPodFields) {
  Json job = valid();
  job["spec"]["template"]["spec"]["containers"][0]["fieldOfTheFuture"] = {{"deep", {1, 2}}};
  const Reply made = server_->call("POST", jobs(), job);
  ASSERT_EQ(made.status, 201) << made.message();
  EXPECT_EQ(made.body["spec"]["nodes"], 1);
  EXPECT_FALSE(made.body["spec"].contains("processesPerNode")) << "the default depends on resourcesPerNode";
  for (const char* key : {"failurePolicy", "stallPolicy", "scheduling", "successPolicy", "rendezvous", "launcher"})
    EXPECT_FALSE(made.body["spec"].contains(key)) << key;
  EXPECT_EQ(made.body["spec"]["suspend"], false);
  EXPECT_EQ(made.body["spec"]["template"]["spec"]["containers"][0]["fieldOfTheFuture"],
            Json::parse(R"({"deep": [1, 2]})"));
}

TEST_F(Crd, RankFieldsAreImmutableUnlessSuspended) {
  ASSERT_EQ(create(valid()).status, 201);
  const Json changes[] = {{{"nodes", 3}},
                          {{"processesPerNode", 2}},
                          {{"rendezvous", {{"port", 30000}}}},
                          {{"profile", "other"}},
                          {{"scheduling", {{"topology", {{"key", "zone"}}}}}},
                          {{"trainer", {{"seed", 1}}}},
                          {{"resourcesPerNode", {{"limits", {{"cpu", 2}}}}}},
                          {{"checkpoints", {{"claimName", "c"}}}},
                          {{"elastic", {{"minNodes", 1}}}},
                          {{"template", {{"metadata", {{"labels", {{"a", "b"}}}}}}}}};
  for (const Json& change : changes) {
    const Reply reply = patch("/j", {{"spec", change}});
    EXPECT_EQ(reply.status, 422) << change;
    EXPECT_THAT(reply.message(), HasSubstr("shape the ranks and cannot change")) << change;
  }
  EXPECT_TRUE(patch("/j", {{"spec", {{"suspend", true}}}}).ok());
  EXPECT_TRUE(patch("/j", {{"spec", {{"failurePolicy", {{"maxRestarts", 7}}}}}}).ok());
  ASSERT_TRUE(patch("/j/status", {{"status", {{"phase", "Suspended"}}}}).ok());
  for (const Json& change : changes) {
    const Reply reply = patch("/j", {{"spec", change}});
    EXPECT_TRUE(reply.ok()) << change << reply.message();
  }
}

// Earlier versions of the CRD had these defaults, which the API server has stored in each job.
TEST_F(Crd, AJobThatWasStoredWithTheFormerDefaultsCanBeReplaced) {
  const std::string definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.oarlock.dev";
  const Json present = server_->call("GET", definition).body["spec"]["versions"];
  const auto set_versions = [&](const Json& versions) {
    ASSERT_TRUE(server_->call("PATCH", definition, {{"spec", {{"versions", versions}}}}).ok());
    const bool has_default = versions != present;
    Json probe = valid();
    probe["metadata"]["name"] = "probe";
    ASSERT_TRUE(eventually([&] {
      const Reply reply = server_->call("POST", jobs() + "?dryRun=All", probe);
      return reply.ok() && reply.body["spec"].contains("rendezvous") == has_default;
    }));
  };
  Json former = present;
  Json& rendezvous = former[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["rendezvous"];
  rendezvous["default"] = Json::object();
  rendezvous["properties"]["port"]["default"] = 29500;
  set_versions(former);
  const Json stored = create(valid()).body;
  set_versions(present);
  ASSERT_EQ(stored["spec"]["rendezvous"]["port"], 29500);
  const auto put = [&](const Json& port) {
    Json job = valid();
    job["metadata"]["resourceVersion"] = server_->call("GET", jobs() + "/j").body["metadata"]["resourceVersion"];
    if (!port.is_null()) job["spec"]["rendezvous"]["port"] = port;
    return server_->call("PUT", jobs() + "/j", job);
  };
  EXPECT_EQ(put(30000).status, 422);
  const Reply unchanged = put(nullptr);
  EXPECT_TRUE(unchanged.ok()) << unchanged.message();
  EXPECT_FALSE(unchanged.body["spec"].contains("rendezvous"));
  EXPECT_EQ(put(30000).status, 422);
  EXPECT_TRUE(put(29500).ok());
  EXPECT_TRUE(put(nullptr).ok());
  ASSERT_TRUE(patch("/j/status", {{"status", {{"profile", {{"name", "default"}}}}}}).ok());
  EXPECT_EQ(put(29500).status, 422) << "the profile can have another port";
}

TEST_F(Crd, PoliciesAreMutableAndManagedByIsNot) {
  ASSERT_EQ(create(valid()).status, 201);
  for (const Json& change :
       {Json{{"activeDeadlineSeconds", 60}}, Json{{"ttlSecondsAfterFinished", 0}}, Json{{"cleanPodPolicy", "All"}},
        Json{{"successPolicy", "Rank0"}}, Json{{"stallPolicy", {{"timeoutSeconds", 60}}}},
        Json{{"activeDeadlineSeconds", nullptr}}}) {
    const Reply reply = patch("/j", {{"spec", change}});
    EXPECT_TRUE(reply.ok()) << change << reply.message();
  }
  const Reply taken = patch("/j", {{"spec", {{"managedBy", "kueue.x-k8s.io/multikueue"}}}});
  EXPECT_EQ(taken.status, 422);
  EXPECT_THAT(taken.message(), HasSubstr(api::rules::kManagedByFixed));
}

TEST_F(Crd, AScaleIsAnEditOfNodes) {
  ASSERT_EQ(create(valid()).status, 201);
  const Reply running = patch("/j/scale", {{"spec", {{"replicas", 4}}}});
  EXPECT_EQ(running.status, 422) << running.body;
  EXPECT_THAT(running.message(), HasSubstr("shape the ranks and cannot change"));
  ASSERT_TRUE(patch("/j/status", {{"status", {{"phase", "Suspended"}}}}).ok());
  EXPECT_TRUE(patch("/j/scale", {{"spec", {{"replicas", 4}}}}).ok());
  EXPECT_EQ(server_->call("GET", jobs() + "/j").body["spec"]["nodes"], 4);
}

TEST_F(Crd, ElasticJobScalesWhileItRuns) {
  Json job = valid();
  job["spec"]["nodes"] = 2;
  job["spec"]["elastic"] = {{"minNodes", 2}, {"maxNodes", 4}};
  ASSERT_EQ(create(job).status, 201);
  const Json made = server_->call("GET", jobs() + "/j").body;
  EXPECT_EQ(made["spec"]["elastic"]["shrinkAfterSeconds"], 240);
  EXPECT_EQ(made["spec"]["elastic"]["growAfterSeconds"], 1800);
  ASSERT_TRUE(patch("/j/status", {{"status", {{"phase", "Running"}, {"nodes", {{"desired", 3}}}}}}).ok());
  EXPECT_TRUE(patch("/j/scale", {{"spec", {{"replicas", 4}}}}).ok());
  const Json scale = server_->call("GET", jobs() + "/j/scale").body;
  EXPECT_EQ(scale["spec"]["replicas"], 4);
  EXPECT_EQ(scale["status"]["replicas"], 3) << "the nodes of the attempt";
  for (const int nodes : {1, 5}) {
    const Reply reply = patch("/j/scale", {{"spec", {{"replicas", nodes}}}});
    EXPECT_EQ(reply.status, 422) << nodes;
    EXPECT_THAT(reply.message(), HasSubstr(api::rules::kElasticBounds));
  }
  EXPECT_TRUE(patch("/j", {{"spec", {{"elastic", {{"shrinkAfterSeconds", 600}, {"maxNodes", nullptr}}}}}}).ok());
  EXPECT_TRUE(patch("/j", {{"spec", {{"nodes", 5}}}}).ok());
  const Reply removed = patch("/j", {{"spec", {{"elastic", nullptr}}}});
  EXPECT_EQ(removed.status, 422);
  EXPECT_THAT(removed.message(), HasSubstr("cannot be added or removed"));
  EXPECT_EQ(patch("/j", {{"spec", {{"processesPerNode", 2}}}}).status, 422);
}

TEST_F(Crd, StatusIsWrittenThroughSubresourceOnly) {
  ASSERT_EQ(create(valid()).status, 201);
  const Reply spec = patch("/j", {{"status", {{"phase", "Complete"}}}});
  EXPECT_FALSE(spec.body.contains("status"));
  const Reply status = patch("/j/status", {{"spec", {{"suspend", true}}}, {"status", {{"phase", "Running"}}}});
  EXPECT_EQ(status.body["spec"]["suspend"], false);
  EXPECT_EQ(status.body["status"]["phase"], "Running");
  EXPECT_EQ(status.body["metadata"]["generation"], 1);
}

TEST_F(Crd, KubectlShowsTheColumns) {
  ASSERT_EQ(create(valid()).status, 201);
  ASSERT_TRUE(
      patch("/j/status", Json::parse(R"({"status": {"phase": "Running", "nodes": {"desired": 1, "summary": "1/1"},
    "progress": {"step": 42, "completed": "21%", "loss": 0.5, "samplesPerSecond": 1200}, "restarts": {"total": 3, "charged": 3},
    "queue": {"name": "team-a"}}})"))
          .ok());
  const auto shown = [&](const char* output) {
    const std::string kubectl = server_->kubeconfig().substr(0, server_->kubeconfig().rfind('/')) + "/bin/kubectl";
    Program program({kubectl, "get", "tj", "-n", ns_, "-o", output},
                    {.environment = {{"KUBECONFIG", server_->kubeconfig()}}, .directory = ""});
    EXPECT_EQ(program.wait(), 0) << program.err();
    return std::istringstream(program.out());
  };
  std::istringstream table = shown("");
  std::string header;
  std::getline(table, header);
  EXPECT_THAT(header, ::testing::MatchesRegex("NAME +STATE +READY +STEP +PROGRESS +RESTARTS +AGE *"));
  std::string name, state, ready, step, progress, restarts;
  table >> name >> state >> ready >> step >> progress >> restarts;
  EXPECT_EQ(name + " " + state + " " + ready + " " + step + " " + progress + " " + restarts, "j Running 1/1 42 21% 3");

  std::istringstream wide = shown("wide");
  std::getline(wide, header);
  EXPECT_THAT(header, ::testing::MatchesRegex(".* RESTARTS +LOSS +SPEED +QUEUE +AGE *"));
  std::string loss, speed, queue;
  wide >> name >> state >> ready >> step >> progress >> restarts >> loss >> speed >> queue;
  EXPECT_EQ(loss + " " + speed + " " + queue, "0.5 1200 team-a");
}

class Tls : public Crd {
 protected:
  http::TransportOptions options() const {
    const auto config = kube::load_kubeconfig(server_->kubeconfig());
    EXPECT_TRUE(config);
    return kube::transport_options(*config, "oarlock-test", std::make_shared<RealClock>());
  }
  static http::TransportResult<http::Response> get_jobs(const http::TransportOptions& options) {
    auto transport = http::create_transport(options);
    EXPECT_TRUE(transport) << transport.error().message;
    return (*transport)
        ->send({.method = "GET", .target = "/api/v1/namespaces", .body = "", .content_type = ""}, 20s, {});
  }
};

TEST_F(Tls, ConnectsWithAuthorityAndClientCertificate) {
  const auto response = get_jobs(options());
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 200);
}

TEST_F(Tls, RejectsUnknownAuthorityBeforeSending) {
  http::TransportOptions wrong = options();
  // A certificate, but not of the authority: the client's own.
  wrong.ca = wrong.client_certificate;
  const auto response = get_jobs(wrong);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, http::TransportErrorKind::kTls);
  EXPECT_THAT(response.error().message, HasSubstr("certificate is not accepted"));
  // The system's authorities are trusted neither in addition to it nor instead of it.
  wrong.ca = {};
  EXPECT_EQ(get_jobs(wrong).error().kind, http::TransportErrorKind::kTls);
  wrong.verify = false;
  EXPECT_TRUE(get_jobs(wrong));
}

TEST_F(Tls, UsesSystemAuthoritiesOnlyByDefault) {
  const TemporaryDirectory directory;
  const std::string system = (directory.path() / "system.pem").string();
  http::TransportOptions given = options();
  std::ofstream(system) << given.ca.text;
  ASSERT_EQ(::setenv("SSL_CERT_FILE", system.c_str(), 1), 0);  // where OpenSSL looks for them
  http::TransportOptions none = given;
  none.ca = {};
  EXPECT_TRUE(get_jobs(none));
  given.ca = given.client_certificate;
  EXPECT_FALSE(get_jobs(given));
  ::unsetenv("SSL_CERT_FILE");
}

TEST_F(Tls, ACertificateForAnotherNameIsRefused) {
  http::TransportOptions wrong = options();
  wrong.tls_server_name = "another.server";
  const auto response = get_jobs(wrong);
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, http::TransportErrorKind::kTls);
  EXPECT_THAT(response.error().message, HasSubstr("another host name"));
  wrong.tls_server_name = "kubernetes.default.svc";
  EXPECT_TRUE(get_jobs(wrong));
}

TEST_F(Tls, WithoutCredentialsTheUserIsAnonymous) {
  http::TransportOptions anonymous = options();
  anonymous.client_certificate = {};
  anonymous.client_key = {};
  EXPECT_EQ(get_jobs(anonymous)->status, 403);  // system:anonymous
  anonymous.token = std::make_shared<http::ConstantToken>("not a token");
  EXPECT_EQ(get_jobs(anonymous)->status, 401);
}

TEST_F(Tls, ReadsAuthorityFileForEachConnection) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "ca.crt").string();
  http::TransportOptions rotating = options();
  const std::string good = rotating.ca.text;
  std::ofstream(file) << rotating.client_certificate.text;  // the wrong one at first
  rotating.ca = {.text = "", .file = file};
  auto transport = http::create_transport(rotating);
  ASSERT_TRUE(transport);
  const http::Request request{.method = "GET", .target = "/version", .body = "", .content_type = ""};
  EXPECT_FALSE((*transport)->send(request, 20s, {}));
  std::ofstream(file) << good;
  EXPECT_TRUE((*transport)->send(request, 20s, {}));
}

TEST_F(Tls, PreconditionsAreObeyedByTheServer) {
  const auto shared = std::shared_ptr<http::Transport>(std::move(*http::create_transport(options())));
  const kube::Client client(shared, 20s);
  const Json made = create(valid()).body;
  const std::string uid = made["metadata"]["uid"];
  const kube::Resource resource{"oarlock.dev", "v1alpha1", "trainingjobs"};
  const auto wrong_uid = client.remove(resource, {ns_, "j"}, {.uid = "another", .resource_version = ""}, {});
  EXPECT_EQ(wrong_uid.error().kind, kube::ApiErrorKind::kConflict);
  const auto old = client.remove(resource, {ns_, "j"}, {.uid = uid, .resource_version = "1"}, {});
  EXPECT_EQ(old.error().kind, kube::ApiErrorKind::kConflict);
  EXPECT_EQ(client.create(resource, ns_, valid().dump(), {}).error().kind, kube::ApiErrorKind::kAlreadyExists);
  EXPECT_TRUE(
      client.remove(resource, {ns_, "j"}, {.uid = uid, .resource_version = made["metadata"]["resourceVersion"]}, {}));
  EXPECT_EQ(client.get(resource, {ns_, "j"}, {}).error().kind, kube::ApiErrorKind::kNotFound);
}

}  // namespace
}  // namespace oarlock::test
