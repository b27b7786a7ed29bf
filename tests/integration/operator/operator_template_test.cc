// Pod templates against a real kube-apiserver: jobs without one, jobs with typing errors in one, and the fields that
// the API server supports.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/job_file.h"
#include "cli/pod_schema/pod_schema.h"
#include "operator/core/desired.h"
#include "tests/support/job_world.h"
#include "tests/support/template_typos.h"
#include "tests/support/template_variants.h"
#include "tests/support/value_mistakes.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kNotKept[] = "CheckpointsNotKept";

class Template : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  // The namespace rejects pods that do not meet the restricted Pod Security level.
  void SetUp() override {
    world_ = std::make_unique<JobWorld>(*server_, server_->make_namespace());
    world_->call("PATCH", "/api/v1/namespaces/" + world_->namespace_name(),
                 {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
    start_operator("example.invalid/launcher:1");
  }
  void start_operator(const std::string& launcher_image) {
    operator_.reset();
    operator_ = std::make_unique<OperatorProcess>(
        std::vector<std::string>{"--kubeconfig", server_->kubeconfig(), "--namespace", world_->namespace_name(),
                                 "--trainer-image", "example.invalid/trainer:1", "--launcher-image", launcher_image});
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << "---- the operator's log\n" << operator_->log();
    operator_.reset();
  }

  void create(const std::string& name, const Json& spec) {
    world_->call("POST", world_->jobs() + "?fieldValidation=Strict",
                 {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", name}}}, {"spec", spec}});
  }
  Json condition(const std::string& name, const std::string& type) {
    for (const Json& one : world_->status(name).value("conditions", Json::array())) {
      if (one["type"] == type) return one;
    }
    return Json::object();
  }
  std::string claim(const std::string& name) const {
    return "/api/v1/namespaces/" + world_->namespace_name() + "/persistentvolumeclaims/" + name;
  }
  static Json variable(const Json& pod, const std::string& name) {
    for (const Json& one : pod["spec"]["containers"][0]["env"]) {
      if (one["name"] == name) return one["value"];
    }
    return nullptr;
  }
  static Json volume(const Json& pod, const std::string& name) {
    for (const Json& one : pod["spec"]["volumes"]) {
      if (one["name"] == name) return one;
    }
    return nullptr;
  }

  static inline std::unique_ptr<ApiServer> server_;
  std::unique_ptr<JobWorld> world_;
  std::unique_ptr<OperatorProcess> operator_;
};

TEST_F(Template, JobWithoutTemplateMeetsTheRestrictedLevel) {
  create("j", {{"nodes", 2}, {"trainer", {{"task", "t"}}}});
  world_->wait_for_pods({"j-0-0", "j-0-1"});
  const Json pod = world_->pod("j-0-1");
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "example.invalid/trainer:1");
  EXPECT_EQ(variable(pod, "WORLD_SIZE"), "2");
  EXPECT_EQ(variable(pod, "OARLOCK_CHECKPOINT_DIR"), "/checkpoints/j");
  EXPECT_TRUE(volume(pod, "checkpoints").contains("emptyDir"));
  EXPECT_FALSE(pod["metadata"].contains("annotations") &&
               pod["metadata"]["annotations"].contains("pod-security.kubernetes.io/warn"));
  world_->wait("the condition", [&] { return world_->has_condition("j", kNotKept, "True", "EmptyDir"); });
  EXPECT_THAT(condition("j", kNotKept)["message"].get<std::string>(), HasSubstr("spec.checkpoints"));
  world_->wait("the event", [&] {
    const std::vector<std::string> reasons = world_->event_reasons("j");
    return std::ranges::find(reasons, kNotKept) != reasons.end();
  });
  world_->set_pods({"j-0-0", "j-0-1"}, pod_running());
  world_->set_pods({"j-0-0", "j-0-1"}, pod_ended(0));
  world_->wait_for_phase("j", "Complete");
}

// The API server computes the QoS class, and rejects pods that violate the Pod Security level of the namespace.
TEST_F(Template, LauncherIsAddedToPodsOfOtherImages) {
  Json pod_template = Json::parse(R"json({"spec": {
    "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "trainer", "image": "example.invalid/mine:1", "command": ["/train"],
      "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
      "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}})json");
  create("j", {{"nodes", 2}, {"template", pod_template}});
  world_->wait_for_pods({"j-0-0", "j-0-1"});
  const auto expect_launcher = [&](const std::string& name) {
    const Json pod = world_->pod(name);
    EXPECT_EQ(pod["status"]["qosClass"], "Guaranteed");
    EXPECT_EQ(pod["spec"]["initContainers"][0]["image"], "example.invalid/launcher:1");
    EXPECT_EQ(pod["spec"]["containers"][0]["command"], Json({"/.oarlock/oarlock", "launch", "--", "/train"}));
    EXPECT_EQ(volume(pod, "oarlock-launcher")["emptyDir"]["sizeLimit"], "64Mi");
  };
  expect_launcher("j-0-1");
  world_->wait("the image in the status", [&] {
    return world_->status("j").value("launcher", Json()) == Json({{"image", "example.invalid/launcher:1"}});
  });

  start_operator("example.invalid/launcher:2");  // an upgrade
  world_->set_pods({"j-0-0", "j-0-1"}, pod_running());
  world_->wait_for_phase("j", "Running");
  world_->set_pods({"j-0-1"}, pod_ended(1));
  world_->wait_for_pods({"j-1-0", "j-1-1"});
  expect_launcher("j-1-1");

  pod_template["spec"]["containers"][0].erase("command");
  create("k", {{"template", pod_template}});
  world_->wait_for_pods({"j-1-0", "j-1-1", "k-0-0"});
  EXPECT_FALSE(world_->pod("k-0-0")["spec"].contains("initContainers"));
  world_->wait("the reason",
               [&] { return world_->status("k").value("launcher", Json()) == Json({{"reason", "NoCommand"}}); });
}

TEST_F(Template, GpusDetermineTheNumberOfRanks) {
  create("j",
         {{"nodes", 2},
          {"image", "example.invalid/mine:1"},
          {"resourcesPerNode", {{"requests", {{"cpu", 8}}}, {"limits", {{"memory", "64Gi"}, {"nvidia.com/gpu", 4}}}}}});
  world_->wait_for_pods({"j-0-0", "j-0-1"});
  const Json pod = world_->pod("j-0-1");
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "example.invalid/mine:1");
  EXPECT_EQ(variable(pod, "WORLD_SIZE"), "8");
  EXPECT_EQ(variable(pod, "PET_NPROC_PER_NODE"), "4");
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "4");
  EXPECT_EQ(volume(pod, "oarlock-shm")["emptyDir"]["sizeLimit"], "64Gi");
  world_->wait("the status", [&] { return world_->status("j").value("worldSize", 0) == 8; });
}

TEST_F(Template, ClaimSurvivesTheJobAndIsUsedAgain) {
  const Json spec = {{"nodes", 2}, {"checkpoints", {{"size", "1Gi"}, {"storageClassName", "shared"}}}};
  create("j", spec);
  world_->wait_for_pods({"j-0-0", "j-0-1"});
  EXPECT_EQ(volume(world_->pod("j-0-0"), "checkpoints")["persistentVolumeClaim"]["claimName"], "j-checkpoints");
  const Json made = world_->call("GET", claim("j-checkpoints"));
  EXPECT_EQ(made["spec"]["accessModes"], Json::array({"ReadWriteMany"}));
  EXPECT_EQ(made["spec"]["storageClassName"], "shared");
  EXPECT_FALSE(made["metadata"].contains("ownerReferences"));
  EXPECT_EQ(made["metadata"]["labels"][kLabelJobName], "j");
  world_->wait_for_phase("j", "Pending");
  EXPECT_EQ(condition("j", kNotKept), Json::object());
  world_->delete_job("j");
  world_->wait("the end of the job's objects",
               [&] { return world_->pod_names().empty() && !world_->exists(world_->services() + "/j"); });
  create("j", spec);
  world_->wait_for_pods({"j-0-0", "j-0-1"});
  EXPECT_EQ(world_->call("GET", claim("j-checkpoints"))["metadata"]["uid"], made["metadata"]["uid"]);
}

// Pods with a claim that is being deleted would never start.
TEST_F(Template, WaitsForTheEndOfADeletedClaim) {
  const std::string list = "/api/v1/namespaces/" + world_->namespace_name() + "/persistentvolumeclaims";
  world_->call("POST", list,
               {{"metadata", {{"name", "j-checkpoints"}, {"finalizers", {"example.com/busy"}}}},
                {"spec", {{"accessModes", {"ReadWriteOnce"}}, {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
  world_->call("DELETE", claim("j-checkpoints"));
  create("j", {{"checkpoints", {{"size", "2Gi"}}}});
  world_->wait("the reason", [&] {
    return condition("j", "Pending").value("message", "").find("j-checkpoints is being deleted") != std::string::npos;
  });
  EXPECT_TRUE(world_->pod_names().empty());
  world_->call("PATCH", claim("j-checkpoints"), {{"metadata", {{"finalizers", nullptr}}}});
  world_->wait_for_pods({"j-0-0"});
  EXPECT_EQ(world_->call("GET", claim("j-checkpoints"))["spec"]["resources"]["requests"]["storage"], "2Gi");
}

TEST_F(Template, ApiServerRejectsContradictoryFields) {
  const std::pair<Json, const char*> rows[] = {
      {{{"checkpoints", Json::object()}}, "exactly one of claimName"},
      {{{"checkpoints", {{"claimName", "a"}, {"storageClassName", "b"}}}}, "set size"},
      {{{"checkpoints", {{"size", "ten"}}}}, "spec.checkpoints.size"},
      {{{"checkpoints", {{"size", "1e999999999"}}}}, "spec.checkpoints.size"},
      {{{"checkpoints", {{"size", "1Gi"}}},
        {"template",
         {{"spec",
           {{"containers",
             {{{"name", "trainer"}, {"volumeMounts", {{{"name", "scratch"}, {"mountPath", "/checkpoints"}}}}}}}}}}}},
       "another volume there would hide it"},
      {{{"processesPerNode", "many"}}, "spec.processesPerNode"},
      {{{"processesPerNode", 0}}, "spec.processesPerNode"},
      {{{"resourcesPerNode", {{"limits", {{"memory", "16 GB"}}}}}}, "spec.resourcesPerNode.limits"},
      {{{"resourcesPerNode", {{"limits", {{"cpu", "1e999999999"}}}}}}, "spec.resourcesPerNode.limits"},
      {{{"image", "a"}, {"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "b"}}}}}}}}},
       "has an image as well"},
      {{{"checkpoints", {{"size", "1Gi"}}}, {"template", {{"spec", {{"volumes", {{{"name", "checkpoints"}}}}}}}}},
       "volume named 'checkpoints'"},
      {{{"template", {{"spec", {{"containers", {{{"name", "main"}, {"image", "b"}}}}}}}}}, "container named 'trainer'"},
      {{{"rendezvous", {{"port", 9401}}}, {"processesPerNode", 2}}, "one of the metrics ports"}};
  for (const auto& [spec, message] : rows) {
    const Reply reply =
        server_->call("POST", world_->jobs(),
                      {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", "j"}}}, {"spec", spec}});
    EXPECT_EQ(reply.status, 422) << spec;
    EXPECT_THAT(reply.message(), HasSubstr(message)) << spec;
  }
  for (const Json& spec : {Json{{"processesPerNode", "auto"}}, Json::object(),
                           Json{{"template", {{"spec", {{"nodeSelector", {{"a", "b"}}}}}}}}}) {
    const Reply reply =
        server_->call("POST", world_->jobs() + "?dryRun=All",
                      {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", "j"}}}, {"spec", spec}});
    EXPECT_EQ(reply.status, 201) << spec << reply.message();
  }
}

TEST_F(Template, TyposFailTheirJobWithThePath) {
  const std::vector<TemplateTypo>& typos = template_typos();
  ASSERT_GE(typos.size(), 20U);
  const auto name = [](size_t i) { return fmt::format("typo-{}", i); };
  for (size_t i = 0; i < typos.size(); ++i) create(name(i), {{"template", with_typo(typos[i])}});
  create("good", Json::object());
  for (size_t i = 0; i < typos.size(); ++i) {
    world_->wait_for_phase(name(i), "Failed");
    const Json failed = condition(name(i), "Failed");
    EXPECT_EQ(failed["reason"], "InvalidTemplate");
    EXPECT_EQ(failed["message"], path_of(typos[i]) + ": unknown field");
    EXPECT_EQ(world_->status(name(i))["restarts"].value("total", 0), 0);
  }
  // Only this job is affected, and nothing is repeated.
  world_->wait_for_pods({"good-0-0"});
  EXPECT_EQ(operator_->metric("rest_client_requests_total", {"code=\"400\"", "method=\"POST\""}),
            static_cast<double>(typos.size()));
  world_->wait("the event", [&] {
    const Json events =
        world_->call("GET", "/apis/events.k8s.io/v1/namespaces/" + world_->namespace_name() + "/events")["items"];
    return std::ranges::any_of(events, [&](const Json& event) {
      return event["regarding"]["name"] == name(1) && event["reason"] == "Failed" &&
             event.value("note", "").find(path_of(typos[1])) != std::string::npos;
    });
  });
}

TEST_F(Template, InvalidValueFailsTheJob) {
  create("j", {{"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"imagePullPolicy", "Sometimes"}}}}}}}}});
  world_->wait_for_phase("j", "Failed");
  EXPECT_THAT(condition("j", "Failed")["message"].get<std::string>(),
              HasSubstr("spec.template.spec.containers[0].imagePullPolicy: Unsupported value"));
}

// Compares `oarlock validate` with the API server, by dry runs.
class TemplateValidation : public Template {
 protected:
  void SetUp() override {
    Template::SetUp();
    world_->wait("the service account",
                 [&] { return world_->exists("/api/v1/namespaces/default/serviceaccounts/default"); });
  }

  // The answer of the API server to the pod of a template.
  static Reply reply_to(const Json& pod_template) {
    api::TrainingJob job;
    job.metadata.name = "j";
    job.metadata.namespace_name = "default";  // the admission of the test's namespace would reject the correct pod, too
    job.metadata.uid = "00000000-0000-0000-0000-000000000000";
    job.spec.pod_template = pod_template.dump();
    Json pod = control::PodFactory(job, 0).pod(0);
    pod["metadata"].erase("ownerReferences");
    for (const char* key : {"serviceAccountName", "priorityClassName"}) {  // the cluster does not have these
      if (pod["spec"].value(key, Json()) == full_template()["spec"][key]) pod["spec"].erase(key);
    }
    return server_->call("POST", "/api/v1/namespaces/default/pods?dryRun=All&fieldValidation=Strict", pod);
  }

  // The problems that `oarlock validate` reports for a template.
  static std::string problems_of(const Json& pod_template) {
    const Json job = {{"apiVersion", kApiVersion},
                      {"kind", kKind},
                      {"metadata", {{"name", "j"}}},
                      {"spec", {{"template", pod_template}}}};
    const auto documents = yaml::parse_all(job.dump(), "job.yaml");
    const auto jobs = cli::jobs_of(documents.value(), "job.yaml", cli::TemplateCheck::kPodSchema);
    return jobs ? "" : jobs.error().message;
  }
};

// The rules of `oarlock validate` for values are those of the API server.
TEST_F(TemplateValidation, ApiServerRejectsTheMistakesThatValidateReports) {
  const Reply correct = reply_to(full_template());
  ASSERT_EQ(correct.status, 201) << correct.message();
  for (const auto* mistakes : {&template_mistakes(), &value_mistakes(), &pod_mistakes()}) {
    for (const TemplateMistake& mistake : *mistakes) {
      const Reply reply = reply_to(with_mistake(mistake));
      EXPECT_EQ(reply.status, 422) << mistake.field << " " << mistake.value << ": " << reply.message();
    }
  }
}

// Each field of the schema with a few values: both accept it, or both reject it.
TEST_F(TemplateValidation, AgreesWithTheApiServerOnVariantsOfEachField) {
  // Rejected by rules of Oarlock: the pod would be accepted, but could not run as part of a job.
  const std::vector<std::string> stricter = {
      "Container.image=",   "Container.name=",        "PodSpec.containers=",     "PodSpec.hostname=",
      "PodSpec.subdomain=", "PodSpec.restartPolicy=", "Container.restartPolicy="};
  // Not checked without the API server: objects of the cluster, admission, and values that occur in no real template.
  const std::vector<std::string> unchecked = {"ObjectFieldSelector.apiVersion=",
                                              "PodSpec.overhead=",
                                              "PodSpec.preemptionPolicy=",
                                              "PodSpec.priority",
                                              "PodSpec.runtimeClassName=",
                                              "PodSecurityContext.seLinuxChangePolicy=",
                                              "PodSpec.serviceAccount",
                                              "PodSpec.hostnameOverride=",
                                              "PersistentVolumeClaimSpec.dataSource",
                                              "VolumeResourceRequirements.requests=",
                                              "WeightedPodAffinityTerm.podAffinityTerm="};
  const auto is_listed = [](const std::string& name, const std::vector<std::string>& list) {
    return std::ranges::any_of(list, [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  size_t compared = 0;
  for (const TemplateVariant& variant : template_variants()) {
    const std::string problems = problems_of(variant.pod_template);
    const Reply reply = reply_to(variant.pod_template);
    ++compared;
    if (problems.empty() && reply.status != 201 && !variant.name.ends_with("=\"\"")) {
      EXPECT_TRUE(is_listed(variant.name, unchecked)) << variant.name << " is not reported: " << reply.message();
    }
    if (!problems.empty() && reply.status == 201) {
      EXPECT_TRUE(is_listed(variant.name, stricter)) << variant.name << " is accepted, but reported: " << problems;
    }
  }
  EXPECT_GT(compared, 500U);
}

// The claim would be used again, with its size, by the corrected job of the same name.
TEST_F(Template, RejectedPodLeavesNoClaim) {
  const Json checkpoints = {{"size", "1Gi"}};
  create("typo", {{"checkpoints", checkpoints}, {"template", {{"spec", {{"nodeSelektor", {{"a", "b"}}}}}}}});
  create("policy", {{"checkpoints", checkpoints}, {"template", {{"spec", {{"hostNetwork", true}}}}}});
  world_->wait_for_phase("typo", "Failed");
  EXPECT_EQ(condition("typo", "Failed")["message"], "spec.template.spec.nodeSelektor: unknown field");
  world_->wait("the condition", [&] { return world_->has_condition("policy", "Pending", "True", "CreateRefused"); });
  EXPECT_FALSE(world_->exists(claim("typo-checkpoints")));
  EXPECT_FALSE(world_->exists(claim("policy-checkpoints")));
}

// The API server would calculate this number for minutes, again and again, because the operator retries.
TEST_F(Template, LargeExponentCreatesNoPod) {
  const Json resources = {{"limits", {{"cpu", "1e999999999"}}}};
  create("j", {{"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"resources", resources}}}}}}}}});
  world_->wait("the condition", [&] { return world_->has_condition("j", "Pending", "True", "InvalidSpec"); });
  EXPECT_THAT(condition("j", "Pending")["message"].get<std::string>(),
              HasSubstr("spec.template.spec.containers[0].resources.limits.cpu: 1e999999999: a quantity has"));
}

// A policy of the cluster may change, so the job waits.
TEST_F(Template, ForbiddenPodIsRetried) {
  create("j", {{"template", {{"spec", {{"hostNetwork", true}}}}}});
  world_->wait("the condition", [&] { return world_->has_condition("j", "Pending", "True", "CreateRefused"); });
  EXPECT_THAT(condition("j", "Pending")["message"].get<std::string>(), HasSubstr("PodSecurity"));
}

// The table of `oarlock validate` against the schema of the API server of the same version.
TEST_F(Template, PodSchemaIsThatOfTheApiServer) {
  const Json version = server_->call("GET", "/version").body;
  EXPECT_EQ(cli::pod_schema_version(),
            fmt::format("v{}.{}", version["major"].get<std::string>(), version["minor"].get<std::string>()));
  const Json definitions = server_->call("GET", "/openapi/v2").body["definitions"];
  std::map<std::string, std::set<std::string>> served;
  for (const auto& [name, definition] : definitions.items()) {
    const bool is_core = name.starts_with("io.k8s.api.core.v1.") || name.ends_with("meta.v1.ObjectMeta");
    if (!is_core || !definition.contains("properties")) continue;
    for (const auto& [key, value] : definition["properties"].items())
      served[name.substr(name.rfind('.') + 1)].insert(key);
  }
  size_t compared = 0;
  for (const cli::PodSchemaType& type : cli::pod_schema_types()) {
    const auto found = served.find(std::string(type.name));
    if (found == served.end()) continue;
    std::set<std::string> known;
    for (const auto& [key, value] : type.fields) known.emplace(key);
    EXPECT_EQ(known, found->second) << type.name << "; run scripts/pod_schema";
    ++compared;
  }
  EXPECT_GT(compared, 80U);
}

}  // namespace
}  // namespace oarlock::test
