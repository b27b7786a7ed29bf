// The ValidatingAdmissionPolicy of manifests/install.yaml against a real kube-apiserver: the operator works under it,
// and its token can do nothing with objects that no TrainingJob controls.
#include <gmock/gmock.h>

#include "http/client/credentials.h"
#include "http/client/transport.h"
#include "kube/auth/kubeconfig.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/job_world.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kOwnNamespace[] = "oarlock-system";
constexpr char kSchedulerPlugins[] = "scheduling.x-k8s.io/v1alpha1";
constexpr char kVolcano[] = "scheduling.volcano.sh/v1beta1";

Json controller(const std::string& job, const std::string& kind = kKind, const std::string& version = kApiVersion) {
  return {{"apiVersion", version},
          {"kind", kind},
          {"name", job},
          {"uid", "0b6f3c1e-1234-4abc-9def-0123456789ab"},
          {"controller", true}};
}

Json object(const std::string& name, const Json& owner, const Json& spec) {
  Json out = {{"metadata", {{"name", name}}}, {"spec", spec}};
  if (!owner.is_null()) out["metadata"]["ownerReferences"] = Json::array({owner});
  return out;
}

Json pod_spec() { return {{"containers", {{{"name", "x"}, {"image", "example.invalid/x"}}}}}; }
Json headless() { return {{"clusterIP", "None"}, {"ports", {{{"port", 1}}}}}; }
Json policy_spec(const std::string& job) { return {{"podSelector", {{"matchLabels", {{kLabelJobName, job}}}}}}; }

// With the operator's own token.
class AdmissionPolicy : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers);
    server_->apply(test::source_path("manifests/install.yaml"));
    server_->apply(test::data_path("kueue_crds.yaml"));
    server_->apply(test::data_path("gang_crds.yaml"));
    // The roles of networkPolicy.jobs.enabled, and rights that the operator does not have, as if an administrator had
    // granted too many: only the policy protects the objects from its token.
    const Json groups = {
        "", kGroup, "networking.k8s.io", "kueue.x-k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"};
    const Json rules = {{{"apiGroups", groups}, {"resources", {"*"}}, {"verbs", {"*"}}}};
    must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
         {{"metadata", {{"name", "too-much"}}}, {"rules", rules}});
    must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
         {{"metadata", {{"name", "too-much"}}},
          {"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", "too-much"}}},
          {"subjects", {{{"kind", "ServiceAccount"}, {"name", "oarlock-operator"}, {"namespace", kOwnNamespace}}}}});
    const Json token =
        must("POST", std::string("/api/v1/namespaces/") + kOwnNamespace + "/serviceaccounts/oarlock-operator/token",
             {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}});
    const auto config = kube::load_kubeconfig(server_->kubeconfig());
    http::TransportOptions options = kube::transport_options(*config, "oarlock-test", std::make_shared<RealClock>());
    options.client_certificate = options.client_key = {};
    options.certificate.reset();
    options.token = std::make_shared<http::ConstantToken>(token["status"]["token"]);
    auto transport = http::create_transport(std::move(options));
    if (!transport) throw std::runtime_error(transport.error().message);
    transport_ = std::move(*transport);
    name_space_ = server_->make_namespace();
    // A new policy takes effect within seconds.
    const bool is_effective = eventually([] {
      const Reply reply = as_operator("POST", core("pods?dryRun=All"), object("x", nullptr, pod_spec()));
      return reply.status == 403 && reply.message().find("ValidatingAdmissionPolicy") != std::string::npos;
    });
    if (!is_effective) throw std::runtime_error("the admission policy never took effect");
    if (!eventually([] { return server_->call("GET", workloads()).ok(); }))
      throw std::runtime_error("Workloads are not served");
    for (const std::string api : {kSchedulerPlugins, kVolcano}) {
      if (!eventually([&] { return server_->call("GET", pod_groups(api)).ok(); }))
        throw std::runtime_error("PodGroups of " + api + " are not served");
    }
  }
  static void TearDownTestSuite() {
    transport_.reset();
    server_.reset();
  }

  static Json must(const std::string& method, const std::string& target, const Json& body = nullptr) {
    const Reply reply = server_->call(method, target, body);
    if (!reply.ok()) throw std::runtime_error(method + " " + target + ": " + reply.message());
    return reply.body;
  }
  static std::string core(const std::string& what) { return "/api/v1/namespaces/" + name_space_ + "/" + what; }
  static std::string policies(const std::string& what = "") {
    return "/apis/networking.k8s.io/v1/namespaces/" + name_space_ + "/networkpolicies" + what;
  }
  static std::string workloads(const std::string& what = "") {
    return "/apis/kueue.x-k8s.io/v1beta2/namespaces/" + name_space_ + "/workloads" + what;
  }
  static std::string pod_groups(const std::string& api, const std::string& what = "") {
    return "/apis/" + api + "/namespaces/" + name_space_ + "/podgroups" + what;
  }

  static Reply as_operator(const std::string& method, const std::string& target, const Json& body = nullptr) {
    const std::string text = body.is_null() ? "" : body.dump();
    const auto response = transport_->send({.method = method,
                                            .target = target,
                                            .body = text,
                                            .content_type = method == "PATCH" ? "application/merge-patch+json"
                                                            : text.empty()    ? ""
                                                                              : "application/json"},
                                           std::chrono::seconds(20), {});
    if (!response) throw std::runtime_error(response.error().message);
    return {response->status, Json::parse(response->body, nullptr, false)};
  }
  static void expect_denied(const std::string& method, const std::string& target, const Json& body,
                            const std::string& why) {
    const Reply reply = as_operator(method, target, body);
    EXPECT_EQ(reply.status, 403) << method << " " << target << " " << reply.body;
    EXPECT_THAT(reply.message(), HasSubstr("ValidatingAdmissionPolicy 'oarlock-operator'"));
    EXPECT_THAT(reply.message(), HasSubstr(why));
  }
  static void expect_allowed(const std::string& method, const std::string& target, const Json& body = nullptr) {
    const Reply reply = as_operator(method, target, body);
    EXPECT_TRUE(reply.ok()) << method << " " << target << " " << reply.body;
  }

  static inline std::unique_ptr<ApiServer> server_;
  static inline std::unique_ptr<http::Transport> transport_;
  static inline std::string name_space_;
};

constexpr char kNotControlled[] = "may only change objects that a TrainingJob controls";

TEST_F(AdmissionPolicy, AllowsCreatingControlledObjectsOnly) {
  const std::string dry = "?dryRun=All";
  expect_allowed("POST", core("pods" + dry), object("j-0-0", controller("j"), pod_spec()));
  expect_allowed("POST", core("services" + dry), object("j", controller("j"), headless()));
  expect_allowed("POST", policies(dry), object("trainingjob-j", controller("j"), policy_spec("j")));

  Json not_controlling = controller("j");
  not_controlling["controller"] = false;
  for (const Json& owner : {Json(nullptr), not_controlling, controller("j", "ReplicaSet", "apps/v1"),
                            controller("j", kKind, "example.com/v1"), controller("j", "Pod", kApiVersion)}) {
    expect_denied("POST", core("pods" + dry), object("j-0-0", owner, pod_spec()), kNotControlled);
    expect_denied("POST", core("services" + dry), object("j", owner, headless()), kNotControlled);
    expect_denied("POST", policies(dry), object("trainingjob-j", owner, policy_spec("j")), kNotControlled);
  }
}

TEST_F(AdmissionPolicy, AllowsOperatorNamesAndShapesOnly) {
  const std::string dry = "?dryRun=All";
  expect_denied("POST", core("pods" + dry), object("other-0-0", controller("j"), pod_spec()), "is not one that");
  expect_denied("POST", core("services" + dry), object("kubernetes", controller("j"), headless()), "is not one that");
  const Json web = {{"ports", {{{"port", 443}}}}, {"selector", {{"app", "fake"}}}};
  expect_denied("POST", core("services" + dry), object("j", controller("j"), web), "headless");
  Json hijack = headless();
  hijack["externalIPs"] = {"192.0.2.1"};
  expect_denied("POST", core("services" + dry), object("j", controller("j"), hijack), "headless");
  expect_denied("POST", policies(dry), object("trainingjob-j", controller("j"), {{"podSelector", Json::object()}}),
                "select the pods of their TrainingJob");
  expect_denied("POST", "/api/v1/namespaces/kube-system/pods" + dry, object("j-0-0", controller("j"), pod_spec()),
                "may not change anything in namespace kube-system");
}

Json claim(const std::string& name, const std::string& job, const Json& more = Json::object()) {
  Json spec = {{"accessModes", {"ReadWriteOnce"}}, {"resources", {{"requests", {{"storage", "1Gi"}}}}}};
  spec.update(more);
  return {{"metadata", {{"name", name}, {"labels", {{kLabelJobName, job}}}}}, {"spec", spec}};
}

TEST_F(AdmissionPolicy, AllowsCreatingClaimsForCheckpointsOnly) {
  const std::string claims = core("persistentvolumeclaims");
  const std::string dry = "?dryRun=All";
  expect_allowed("POST", claims + dry, claim("j-checkpoints", "j"));
  const std::pair<const char*, const char*> wrong[] = {{"j-checkpoints", "k"}, {"data", "j"}, {"data", "data"}};
  for (const auto& [name, job] : wrong)
    expect_denied("POST", claims + dry, claim(name, job), "only create claims for the checkpoints of a TrainingJob");
  // Claims that would expose the data of others.
  for (const Json& more : {Json{{"volumeName", "pv-of-others"}},
                           Json{{"dataSource", {{"kind", "PersistentVolumeClaim"}, {"name", "secret"}}}},
                           Json{{"selector", {{"matchLabels", {{"a", "b"}}}}}}})
    expect_denied("POST", claims + dry, claim("j-checkpoints", "j", more), "only create claims for the checkpoints");
  must("POST", claims, claim("j-checkpoints", "j"));
  expect_denied("DELETE", claims + "/j-checkpoints", nullptr, "only create claims for the checkpoints");
  expect_denied("PATCH", claims + "/j-checkpoints", {{"metadata", {{"labels", {{"a", "b"}}}}}}, "only create claims");
  must("DELETE", claims + "/j-checkpoints");
}

Json workload(const std::string& name, const Json& owner) {
  Json out = object(name, owner, {{"queueName", "q"}});
  out["apiVersion"] = "kueue.x-k8s.io/v1beta2";
  out["kind"] = "Workload";
  return out;
}

TEST_F(AdmissionPolicy, AllowsWorkloadsOfJobsOnly) {
  const std::string dry = "?dryRun=All";
  expect_allowed("POST", workloads(dry), workload("trainingjob-j-0a1b2c3d", controller("j")));
  expect_denied("POST", workloads(dry), workload("trainingjob-k-0a1b2c3d", controller("j")), "is not one that");
  expect_denied("POST", workloads(dry), workload("trainingjob-j-0a1b2c3d", nullptr), kNotControlled);
  must("POST", workloads(), workload("job-of-others", nullptr));
  expect_denied("DELETE", workloads("/job-of-others"), nullptr, kNotControlled);
}

Json pod_group(const std::string& api, const std::string& name, const Json& owner) {
  Json out = object(name, owner, Json::object());
  out["apiVersion"] = api;
  out["kind"] = "PodGroup";
  return out;
}

TEST_F(AdmissionPolicy, AllowsPodGroupsOfJobsOnly) {
  for (const std::string api : {kSchedulerPlugins, kVolcano}) {
    const std::string dry = pod_groups(api, "?dryRun=All");
    expect_allowed("POST", dry, pod_group(api, "j-0", controller("j")));
    expect_denied("POST", dry, pod_group(api, "k-0", controller("j")), "is not one that");
    expect_denied("POST", dry, pod_group(api, "j-0", nullptr), kNotControlled);
    must("POST", pod_groups(api), pod_group(api, "j-1", nullptr));
    expect_denied("DELETE", pod_groups(api, "/j-1"), nullptr, kNotControlled);
  }
}

TEST_F(AdmissionPolicy, ProtectsObjectsOfOthers) {
  must("POST", core("pods"), object("j-0-1", nullptr, pod_spec()));
  must("POST", core("services"), object("j-0-1", nullptr, headless()));
  must("POST", policies(), object("j-0-1", nullptr, policy_spec("j")));
  for (const std::string& target : {core("pods/j-0-1"), core("services/j-0-1"), policies("/j-0-1")}) {
    expect_denied("DELETE", target, nullptr, kNotControlled);
    const Json adopt = {{"metadata", {{"ownerReferences", Json::array({controller("j")})}}}};
    expect_denied("PATCH", target, adopt, kNotControlled);
  }
  EXPECT_FALSE(as_operator("DELETE", core("pods")).ok()) << "deletecollection";
  must("GET", core("pods/j-0-1"));
}

TEST_F(AdmissionPolicy, AllowsDeletingExpiredJobsOnly) {
  JobWorld world(*server_, name_space_);
  world.create_job("precious", 1);
  expect_denied("DELETE", world.jobs() + "/precious", nullptr, "only delete finished TrainingJobs");
  expect_denied("PATCH", world.jobs() + "/precious", {{"spec", {{"suspend", true}}}}, "may only delete");
  expect_denied("POST", world.jobs(), must("GET", world.jobs() + "/precious"), "may only");
}

TEST_F(AdmissionPolicy, DoesNotConcernOthers) {
  must("POST", core("pods"), object("anything", nullptr, pod_spec()));
  must("DELETE", core("pods/anything"));
}

// Expressions are checked against the schema of each resource.
TEST_F(AdmissionPolicy, HasNoTypeWarnings) {
  const std::string target = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/oarlock-operator";
  ASSERT_TRUE(eventually([&] { return must("GET", target)["status"].contains("observedGeneration"); }));
  EXPECT_FALSE(must("GET", target)["status"]["typeChecking"].contains("expressionWarnings"))
      << must("GET", target)["status"].dump(2);
}

// Everything that an operator does with objects: creation, failure and restart, suspension, end and expiry.
TEST_F(AdmissionPolicy, LetsTheOperatorWork) {
  TemporaryDirectory directory;
  FaultProxy proxy(*transport_);
  OperatorProcess process({"--kubeconfig", write_kubeconfig(directory.path(), proxy.url()), "--leader-elect",
                           "--leader-elect-resource-namespace", kOwnNamespace, "--job-network-policy=[]"});
  JobWorld world(*server_, server_->make_namespace());
  const Json spec = {
      {"nodes", 2},
      {"checkpoints", {{"size", "1Gi"}}},
      {"ttlSecondsAfterFinished", 0},
      {"failurePolicy", {{"backoffSeconds", 0}}},
      {"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}}}}}}};
  world.call("POST", world.jobs(),
             {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", "j"}}}, {"spec", spec}});
  world.wait_for_pods({"j-0-0", "j-0-1"});
  world.set_pods({"j-0-0", "j-0-1"}, pod_running());
  world.set_pod("j-0-1", pod_ended(1));
  world.wait_for_pods({"j-1-0", "j-1-1"});
  const std::string groups =
      std::string("/apis/") + kSchedulerPlugins + "/namespaces/" + world.namespace_name() + "/podgroups/";
  world.wait("the PodGroup of the second attempt only",
             [&] { return world.exists(groups + "j-1") && !world.exists(groups + "j-0"); });
  world.patch_job("j", {{"spec", {{"suspend", true}}}});
  world.wait_for_phase("j", "Suspended");
  world.wait_for_pods({});
  world.wait("the deletion of the PodGroup", [&] { return !world.exists(groups + "j-1"); });
  world.patch_job("j", {{"spec", {{"suspend", false}}}});
  world.wait_for_pods({"j-2-0", "j-2-1"});
  world.set_pods({"j-2-0", "j-2-1"}, pod_running());
  world.set_pods({"j-2-0", "j-2-1"}, pod_ended(0));
  world.wait("the job's removal", [&] { return server_->call("GET", world.jobs() + "/j").status == 404; });
  EXPECT_FALSE(process.logged("ValidatingAdmissionPolicy")) << process.log();
}

}  // namespace
}  // namespace oarlock::test
