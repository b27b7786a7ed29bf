// The pod that the operator builds without a template, and the merge of a template into it.
#include "operator/core/pod_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "api/codec.h"
#include "api/rules.h"
#include "api/validate.h"
#include "common/json_access.h"
#include "operator/core/desired.h"
#include "operator/core/reconcile.h"
#include "tests/support/builders.h"
#include "tests/support/golden.h"

namespace oarlock::control {
namespace {

using test::JobBuilder;
using test::names;
using test::only;
using test::seen;
using test::status_after;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kOwnImage[] = R"({"spec":{"containers":[{"name":"trainer","image":"mine:1"}]}})";

// Reads a spec as the API server stores it.
Job job_of(const std::string& spec) {
  const Json object = {{"metadata", {{"name", "mnist"}, {"uid", "u"}}}, {"spec", Json::parse(spec)}};
  return api::training_job_from_json(object).value();
}

Json pod_of(const Job& job, const PodDefaults& defaults = {}) { return PodFactory(job, 0, defaults).pod(0); }

const Json& named(const Json& list, const std::string& name) {
  static const Json kNone;
  for (const Json& item : list) {
    if (text_at(item, "name") == name) return item;
  }
  return kNone;
}

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list) out.push_back(text_at(item, "name"));
  return out;
}

std::string variable(const Json& container, const std::string& name) {
  return text_at(named(elements(container, "env"), name), "value");
}

// ---- without a template ----------------------------------------------------------------------------------------

TEST(PodTemplate, PodsShareADomainOfNodes) {
  const auto affinity_with = [](const std::string& mode) {
    const Json pod = pod_of(job_of(
        R"({"nodes":2,"scheduling":{"topology":{"key":"rack","mode":")" + mode +
        R"("}},"template":{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[1]}}}}})"));
    return pod["spec"]["affinity"];
  };
  const Json term = Json::parse(R"({"topologyKey":"rack","matchLabelKeys":["oarlock.dev/attempt"],)"
                                R"("labelSelector":{"matchLabels":{"oarlock.dev/job-name":"mnist"}}})");
  const Json required = affinity_with("Required");
  EXPECT_EQ(required, Json({{"podAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", {1, term}}}}}));
  EXPECT_EQ(affinity_with("Preferred")["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
            Json::array({{{"weight", 100}, {"podAffinityTerm", term}}}));
  const Json exclusive = affinity_with("Exclusive");
  EXPECT_EQ(exclusive["podAffinity"], required["podAffinity"]);
  EXPECT_EQ(exclusive["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"],
            Json::parse(R"([{"topologyKey":"rack","namespaceSelector":{},"labelSelector":{"matchExpressions":[)"
                        R"({"key":"oarlock.dev/job-name","operator":"Exists"},)"
                        R"({"key":"oarlock.dev/job-uid","operator":"NotIn","values":["u"]}]}}])"));
  EXPECT_FALSE(pod_of(job_of(R"({"nodes":2})"))["spec"].contains("affinity"));
}

TEST(DefaultPod, Golden) {
  const Job job = job_of(R"({"nodes": 2, "trainer": {"task": "t"},
    "resourcesPerNode": {"requests": {"cpu": 4}, "limits": {"memory": "32Gi", "nvidia.com/gpu": 2}},
    "checkpoints": {"size": "10Gi"}})");
  EXPECT_THAT(api::validate(job), IsEmpty());
  test::expect_golden("operator/pod_default.json",
                      PodFactory(job, 0, {.image = "example/trainer:1"}).pod(1).dump(2) + "\n");
}

// The rules of https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted that concern these pods.
TEST(DefaultPod, MeetsTheRestrictedLevel) {
  const std::set<std::string> volume_types = {"configMap", "csi",       "downwardAPI", "emptyDir",
                                              "ephemeral", "projected", "secret",      "persistentVolumeClaim"};
  for (const char* spec : {"{}", R"({"nodes": 3, "trainer": {}})", R"({"checkpoints": {"claimName": "c"}})",
                           R"({"image": "mine:1", "resourcesPerNode": {"limits": {"amd.com/gpu": 8}}})"}) {
    const Json pod = pod_of(job_of(spec))["spec"];
    EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true) << spec;
    EXPECT_EQ(pod["securityContext"]["runAsUser"], 65532) << spec;
    EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault") << spec;
    for (const char* key : {"hostNetwork", "hostPID", "hostIPC"}) EXPECT_FALSE(pod.contains(key)) << spec;
    for (const Json& container : pod["containers"]) {
      EXPECT_EQ(container["securityContext"]["allowPrivilegeEscalation"], false) << spec;
      EXPECT_EQ(container["securityContext"]["capabilities"]["drop"], Json::array({"ALL"})) << spec;
    }
    for (const Json& volume : pod["volumes"]) {
      for (const auto& [key, value] : volume.items())
        EXPECT_TRUE(key == "name" || volume_types.contains(key)) << spec << key;
    }
  }
}

TEST(DefaultPod, ImageIsOfTheSpecOrTheOperator) {
  EXPECT_EQ(pod_of(job_of("{}"), {.image = "here/trainer:2"})["spec"]["containers"][0]["image"], "here/trainer:2");
  EXPECT_EQ(pod_of(job_of(R"({"image": "mine:1"})"))["spec"]["containers"][0]["image"], "mine:1");
  EXPECT_THAT(default_trainer_image(), ::testing::MatchesRegex("oarlock/trainer:[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(DefaultPod, UserZeroLeavesIdentityToTheCluster) {
  const Json context = pod_of(job_of("{}"), {.image = "i", .user = 0})["spec"]["securityContext"];
  for (const char* key : {"runAsUser", "runAsGroup", "fsGroup"}) EXPECT_FALSE(context.contains(key)) << key;
  EXPECT_EQ(context["runAsNonRoot"], true);
}

TEST(DefaultPod, SharedMemoryIsLimitedByTheMemoryLimit) {
  const auto source = [](const char* spec) {
    return named(pod_of(job_of(spec))["spec"]["volumes"], kShmVolume)["emptyDir"];
  };
  EXPECT_EQ(source(R"({"resourcesPerNode": {"limits": {"memory": "8Gi"}}})"),
            Json({{"medium", "Memory"}, {"sizeLimit", "8Gi"}}));
  EXPECT_EQ(source("{}"), Json({{"medium", "Memory"}}));
}

TEST(DefaultPod, SeveralNodesPreferDifferentMachines) {
  EXPECT_FALSE(pod_of(job_of("{}"))["spec"].contains("topologySpreadConstraints"));
  const Json spread = pod_of(job_of(R"({"nodes": 2})"))["spec"]["topologySpreadConstraints"];
  ASSERT_EQ(spread.size(), 1U);
  EXPECT_EQ(spread[0]["whenUnsatisfiable"], "ScheduleAnyway") << "a job must start on a cluster with a single node";
  EXPECT_EQ(spread[0]["labelSelector"]["matchLabels"][kLabelJobName], "mnist");
}

// ---- checkpoints -----------------------------------------------------------------------------------------------

TEST(Checkpoints, VolumeIsClaimOrEmptyDir) {
  const auto volume = [](const char* spec) {
    const Json pod = pod_of(job_of(spec));
    EXPECT_EQ(variable(pod["spec"]["containers"][0], kEnvCheckpointDir), "/checkpoints/mnist") << spec;
    return named(pod["spec"]["volumes"], kCheckpointVolume);
  };
  EXPECT_EQ(volume(R"({"checkpoints": {"claimName": "mine"}})")["persistentVolumeClaim"]["claimName"], "mine");
  EXPECT_EQ(volume(R"({"checkpoints": {"size": "1Gi"}})")["persistentVolumeClaim"]["claimName"], "mnist-checkpoints");
  EXPECT_EQ(volume("{}")["emptyDir"], Json::object());
}

TEST(Checkpoints, ClaimHasNoOwnerAndFitsTheNodes) {
  const Job one = job_of(R"({"nodes": 1, "checkpoints": {"size": "1Gi"}})");
  const Json claim = desired_claim(one);
  EXPECT_FALSE(claim["metadata"].contains("ownerReferences")) << "a trained model survives its job";
  EXPECT_EQ(claim["metadata"]["labels"][kLabelJobName], "mnist");
  EXPECT_EQ(claim["spec"]["accessModes"], Json::array({"ReadWriteOnce"}));
  EXPECT_EQ(claim["spec"]["resources"]["requests"]["storage"], "1Gi");
  EXPECT_FALSE(claim["spec"].contains("storageClassName")) << "the default class of the cluster";
  const Json several =
      desired_claim(job_of(R"({"nodes": 2, "checkpoints": {"size": "1Gi", "storageClassName": "nfs"}})"));
  EXPECT_EQ(several["spec"]["accessModes"], Json::array({"ReadWriteMany"}));
  EXPECT_EQ(several["spec"]["storageClassName"], "nfs");
  // An empty name is not an absent one: it disables dynamic provisioning.
  const Json no_class = desired_claim(job_of(R"({"checkpoints": {"size": "1Gi", "storageClassName": ""}})"));
  EXPECT_EQ(no_class["spec"].value("storageClassName", "absent"), "");
}

TEST(Checkpoints, ClaimPrecedesThePodsOfEachAttempt) {
  Job job = job_of(R"({"checkpoints": {"size": "1Gi"}})");
  EXPECT_THAT(names(reconcile(seen(job))),
              ElementsAre("ConfirmJobUnchanged", "CreateClaim mnist-checkpoints", "CreatePod mnist-0-0"));
  job.spec.checkpoints = api::Checkpoints{.claim_name = "mine", .size = "", .storage_class_name = {}};
  EXPECT_THAT(names(reconcile(seen(job))), Not(Contains(HasSubstr("CreateClaim"))));
}

// Returns the status and the names of the warnings after the pods of a new job were created.
std::pair<api::Status, std::vector<std::string>> first_status(const Job& job) {
  test::PodBuilder pod(job.metadata.name, 0, 0);
  pod.owner(job.metadata.uid);
  const Observed observed = seen(job, {pod});
  const Plan plan = reconcile(observed);
  std::vector<std::string> warnings;
  for (const EmitEvent& event : only<EmitEvent>(plan)) {
    if (event.type == EmitEvent::Type::kWarning) warnings.push_back(event.reason);
  }
  return {status_after(observed, plan), warnings};
}

bool has_condition(const api::Status& status) {
  return std::ranges::any_of(status.conditions, [](const api::Condition& condition) {
    return condition.type == api::kConditionCheckpointsNotKept && condition.status &&
           condition.message.find("spec.checkpoints") != std::string::npos;
  });
}

TEST(Checkpoints, EmptyDirIsReported) {
  const auto [status, warnings] = first_status(job_of("{}"));
  EXPECT_TRUE(has_condition(status));
  EXPECT_THAT(warnings, ElementsAre(api::kConditionCheckpointsNotKept));
  for (const char* spec : {R"({"checkpoints": {"size": "1Gi"}})", R"({"checkpoints": {"claimName": "c"}})"}) {
    const auto [kept, none] = first_status(job_of(spec));
    EXPECT_FALSE(has_condition(kept)) << spec;
    EXPECT_THAT(none, IsEmpty()) << spec;
  }
  EXPECT_FALSE(has_condition(first_status(job_of(std::string(R"({"template": )") + kOwnImage + "}")).first));
  const auto with_volume = [](const char* volume) {
    return job_of(fmt::format(R"({{"template": {{"spec": {{"volumes": [{}]}}}}}})", volume));
  };
  EXPECT_TRUE(has_condition(first_status(with_volume(R"({"name": "checkpoints", "emptyDir": {}})")).first));
  EXPECT_TRUE(has_condition(first_status(with_volume(R"({"name": "checkpoints"})")).first));
  EXPECT_FALSE(has_condition(first_status(with_volume(R"({"name": "checkpoints", "nfs": {}})")).first));
}

TEST(Checkpoints, ConditionEndsWhenResumedWithAClaim) {
  Job job = job_of("{}");
  job.status = first_status(job).first;
  job.status.phase = api::Phase::kSuspended;
  job.spec.checkpoints = api::Checkpoints{.claim_name = "mine", .size = "", .storage_class_name = {}};
  const Observed observed = seen(job);
  EXPECT_FALSE(has_condition(status_after(observed, reconcile(observed))));
}

// ---- processesPerNode ------------------------------------------------------------------------------------------

TEST(ProcessesPerNode, FollowsTheGpus) {
  const std::pair<const char*, int> rows[] = {
      {"{}", 1},
      {R"({"processesPerNode": 3})", 3},
      {R"({"processesPerNode": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}})", 3},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}})", 8},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "4"}}})", 4},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "4000m"}}})", 4},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "4e0"}}})", 4},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "+4.0"}}})", 4},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "0.004k"}}})", 4},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4.0}}})", 4},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "0.0625Ki"}}})", 64},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "0.5"}}})", 1},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": -4}}})", 1},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "inf"}}})", 1},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}, "template": {"spec": {"containers": [
         {"name": "trainer", "resources": {"limits": null}}]}}})",
       1},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}, "template": {"spec": {"containers": [
         {"name": "trainer", "resources": null}]}}})",
       1},
      {R"({"resourcesPerNode": {"limits": {"amd.com/gpu": 2, "cpu": 16, "rdma/hca": 4}}})", 2},
      {R"({"resourcesPerNode": {"limits": {"gpu.intel.com/i915": 2}}})", 2},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/mig-1g.5gb": 2, "nvidia.com/gpu.shared": 1}}})", 3},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}}})", 1},
      {R"({"resourcesPerNode": {"limits": {"cpu": "4"}}})", 1},
      {R"({"processesPerNode": "auto"})", 1},
      {R"({"processesPerNode": "auto", "template": {"spec": {"containers": [
         {"name": "side", "resources": {"limits": {"nvidia.com/gpu": 1}}},
         {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}}})",
       4},
      // As before this field existed: a template's GPUs alone change nothing.
      {R"({"template": {"spec": {"containers": [
         {"name": "trainer", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 4}}}]}}})",
       1}};
  for (const auto& [spec, expected] : rows) {
    const Job job = job_of(spec);
    EXPECT_EQ(job.spec.processes_per_node, expected) << spec;
    EXPECT_EQ(job_of(api::to_json(job)["spec"].dump()).spec, job.spec) << spec;
  }
  const Job newer = api::read_training_job({{"spec", {{"processesPerNode", "many"}}}});
  EXPECT_THAT(newer.report.unknown, ElementsAre(HasSubstr("spec.processesPerNode")));
}

// The user has not written processesPerNode, so the message names the field with the GPUs, and nothing that follows.
TEST(ProcessesPerNode, TooManyGpusAreReportedOnce) {
  struct TooManyGpus {
    const char* spec;
    const char* path;
  };
  constexpr char kFirst[] = "spec.resourcesPerNode.limits";
  constexpr char kSecond[] = "spec.template.spec.containers";
  const TooManyGpus rows[] = {
      {.spec = R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 129}}})", .path = kFirst},
      {.spec = R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "1000k"}}})", .path = kFirst},
      {.spec = R"({"processesPerNode": "auto", "resourcesPerNode": {"limits": {"a.com/gpu": 64, "b.com/gpu": 65}}})",
       .path = kFirst},
      {.spec = R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}, "template": {"spec": {"containers": [
         {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 129}}}]}}})",
       .path = kSecond},
      {.spec = R"({"processesPerNode": "auto", "template": {"spec": {"containers": [
         {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 129}}}]}}})",
       .path = kSecond}};
  for (const TooManyGpus& row : rows) {
    const Job job = job_of(row.spec);
    EXPECT_EQ(job.report.problem, "") << row.spec;
    EXPECT_EQ(api::validate(job), (std::vector<api::FieldProblem>{{row.path, api::rules::kTooManyGpus}})) << row.spec;
  }
  EXPECT_TRUE(api::validate(job_of(R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 128}}})")).empty());
  EXPECT_TRUE(
      api::validate(job_of(R"({"processesPerNode": 1, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 256}}})"))
          .empty());
}

TEST(ProcessesPerNode, OfGpusReachTheEnvironment) {
  const Json trainer =
      pod_of(job_of(R"({"nodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}})"))["spec"]["containers"][0];
  EXPECT_EQ(variable(trainer, kEnvWorldSize), "8");
  EXPECT_EQ(variable(trainer, kEnvPetNprocPerNode), "4");
  EXPECT_EQ(trainer["resources"], Json({{"limits", {{"nvidia.com/gpu", 4}}}}));
}

// ---- merge -----------------------------------------------------------------------------------------------------

Json merged(const Json& pod_template, const std::string& spec = "{}") {
  Json with = Json::parse(spec);
  with["template"] = pod_template;
  const Job job = job_of(with.dump());
  EXPECT_THAT(api::validate(job), IsEmpty()) << with;
  return make_pod_template(job, {.image = "default:1"});
}

TEST(Merge, TemplateWithoutContainersKeepsTheDefaultOne) {
  const Json out =
      merged({{"metadata", {{"labels", {{"team", "a"}}}}}, {"spec", {{"nodeSelector", {{"disk", "ssd"}}}}}});
  EXPECT_EQ(out["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(out["spec"]["nodeSelector"]["disk"], "ssd");
  EXPECT_EQ(out["spec"]["containers"][0]["image"], "default:1");
  EXPECT_EQ(out["spec"]["securityContext"]["runAsNonRoot"], true);
}

TEST(Merge, UserValuesTakePrecedenceByContainerName) {
  const Json out = merged(Json::parse(R"({"spec": {
    "securityContext": {"fsGroup": 7, "runAsUser": null},
    "containers": [{"name": "side", "image": "s"},
                   {"name": "trainer", "args": ["x"], "securityContext": {"readOnlyRootFilesystem": false},
                    "resources": {"limits": {"memory": "1Gi"}}}]}})"),
                          R"({"resourcesPerNode": {"limits": {"memory": "8Gi", "cpu": 2}}})");
  const Json& trainer = out["spec"]["containers"][1];
  EXPECT_THAT(names_of(out["spec"]["containers"]), ElementsAre("side", "trainer")) << "the template's order";
  EXPECT_EQ(trainer["args"], Json::array({"x"}));
  EXPECT_EQ(trainer["securityContext"]["readOnlyRootFilesystem"], false);
  EXPECT_EQ(trainer["securityContext"]["allowPrivilegeEscalation"], false);
  EXPECT_EQ(trainer["resources"]["limits"], Json({{"memory", "1Gi"}, {"cpu", 2}}));
  EXPECT_EQ(out["spec"]["securityContext"]["fsGroup"], 7);
  EXPECT_FALSE(out["spec"]["securityContext"].contains("runAsUser")) << "null removes a default";
  EXPECT_EQ(out["spec"]["containers"][0], Json({{"name", "side"}, {"image", "s"}}));
}

TEST(Merge, VolumesByNameAndMountsByPathOrVolume) {
  const Json out = merged(Json::parse(R"({"spec": {
    "volumes": [{"name": "data", "hostPath": {"path": "/d"}}, {"name": "checkpoints", "hostPath": {"path": "/c"}}],
    "containers": [{"name": "trainer", "volumeMounts": [
      {"name": "data", "mountPath": "/tmp/"}, {"name": "checkpoints", "mountPath": "/ckpt"}]}]}})"));
  EXPECT_THAT(names_of(out["spec"]["volumes"]), ElementsAre("data", "checkpoints", "tmp"));
  EXPECT_EQ(named(out["spec"]["volumes"], "checkpoints"),
            Json({{"name", "checkpoints"}, {"hostPath", {{"path", "/c"}}}}))
      << "a volume has one source";
  EXPECT_THAT(names_of(out["spec"]["containers"][0]["volumeMounts"]), ElementsAre("data", "checkpoints"));
}

TEST(Merge, OtherListsAreReplaced) {
  const Json out = merged(Json::parse(R"({"spec": {"topologySpreadConstraints": [{"maxSkew": 2}],
    "containers": [{"name": "trainer", "securityContext": {"capabilities": {"drop": ["NET_RAW"]}}}]}})"),
                          R"({"nodes": 2})");
  EXPECT_EQ(out["spec"]["topologySpreadConstraints"], Json::array({{{"maxSkew", 2}}}));
  EXPECT_EQ(out["spec"]["containers"][0]["securityContext"]["capabilities"]["drop"], Json::array({"NET_RAW"}));
}

TEST(Merge, TemplateWithAnImageIsComplete) {
  const Json given = Json::parse(kOwnImage);
  EXPECT_EQ(merged(given), given);
  const Json out =
      merged(given, R"({"checkpoints": {"size": "1Gi"}, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}})");
  EXPECT_EQ(out["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], 1);
  EXPECT_THAT(names_of(out["spec"]["volumes"]), ElementsAre(kCheckpointVolume));
  EXPECT_FALSE(out["spec"].contains("securityContext"));
}

// ---- the contract in other containers --------------------------------------------------------------------------

TEST(Environment, ReachesInitContainersAndSidecars) {
  const Job job = job_of(R"json({"nodes": 2, "trainer": {"task": "t"}, "template": {"spec": {
    "initContainers": [
      {"name": "fetch", "image": "f", "env": [{"name": "MASTER_PORT", "value": "mine"}, {"name": "A", "value": "$(RANK)"}]},
      {"name": "proxy", "image": "p", "restartPolicy": "Always",
       "volumeMounts": [{"name": "checkpoints", "mountPath": "/c"}]}],
    "containers": [{"name": "exporter", "image": "e"}, {"name": "trainer"}]}}})json");
  const Json pod = PodFactory(job, 3).pod(1)["spec"];
  const Json* others[] = {&pod["initContainers"][0], &pod["initContainers"][1], &pod["containers"][0]};
  for (const Json* container : others) {
    const std::string name = text_at(*container, "name");
    EXPECT_EQ(variable(*container, kEnvNodeRank), "1") << name;
    EXPECT_EQ(variable(*container, kEnvWorldSize), "2") << name;
    EXPECT_EQ(variable(*container, kEnvMasterAddr), master_address(job, 3)) << name;
    EXPECT_EQ(variable(*container, kEnvAttempt), "3") << name;
    EXPECT_TRUE(variable(*container, kEnvConfig).empty()) << name << " does not have the file";
    EXPECT_TRUE(variable(*container, kEnvTerminationLog).empty()) << name;
  }
  EXPECT_EQ(variable(*others[0], kEnvMasterPort), "mine") << "the template's value takes precedence";
  EXPECT_EQ(others[0]->at("env").back()["name"], "A") << "$(RANK) expands variables that precede it";
  EXPECT_EQ(variable(*others[1], kEnvCheckpointDir), "/c/mnist");
  EXPECT_EQ(variable(*others[2], kEnvCheckpointDir), "");
  EXPECT_EQ(variable(pod["containers"][1], kEnvConfig), "/etc/oarlock/trainer.json");
  EXPECT_THAT(overridden_variables(job), IsEmpty());
}

// ---- validation ------------------------------------------------------------------------------------------------

TEST(Validate, ReportsContradictoryFields) {
  struct Row {
    const char* spec;
    const char* path;
    const char* message;
  };
  const Row rows[] = {
      {R"({"image": "a", "template": {"spec": {"containers": [{"name": "trainer", "image": "b"}]}}})", "spec.image",
       "has an image as well"},
      {R"({"checkpoints": {}})", "spec.checkpoints", "exactly one of claimName"},
      {R"({"checkpoints": {"claimName": "a", "size": "1Gi"}})", "spec.checkpoints", "exactly one of claimName"},
      {R"({"checkpoints": {"claimName": "a", "storageClassName": "b"}})", "spec.checkpoints.storageClassName",
       "set size"},
      {R"({"checkpoints": {"size": "ten"}})", "spec.checkpoints.size", "'ten' is not a quantity"},
      {R"({"checkpoints": {"size": "1Gi"}, "template": {"spec": {"volumes": [{"name": "checkpoints"}]}}})",
       "spec.checkpoints", "volume named 'checkpoints'"},
      {R"({"checkpoints": {"size": "1e100"}})", "spec.checkpoints.size", "'1e100' is not a quantity"},
      {R"({"checkpoints": {"size": "1Gi"}, "template": {"spec": {"containers": [
         {"name": "trainer", "volumeMounts": [{"name": "scratch", "mountPath": "/checkpoints/"}]}]}}})",
       "spec.template.spec.containers[0].volumeMounts[0].mountPath", "another volume there would hide it"},
      {R"({"resourcesPerNode": {"limits": {"cpu": "1e100"}}})", "spec.resourcesPerNode.limits.cpu",
       "is not a quantity"},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": -4}}})", "spec.resourcesPerNode.limits.nvidia.com/gpu",
       "-4 is not a quantity"},
      {R"({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1.5}}})", "spec.resourcesPerNode.limits.nvidia.com/gpu",
       "1.5 is not a whole number"},
      {R"({"resourcesPerNode": {"limits": {"memory": "-1Gi"}}})", "spec.resourcesPerNode.limits.memory",
       "is not a quantity"},
      {R"({"resourcesPerNode": {"limits": {"memory": "16 GB"}}})", "spec.resourcesPerNode.limits.memory",
       "\"16 GB\" is not a quantity, such as 16G or 16Gi"},
      {R"({"resourcesPerNode": {"limits": {"memory": "1.5KiB"}}})", "spec.resourcesPerNode.limits.memory",
       "\"1.5KiB\" is not a quantity, such as 1.5k or 1.5Ki"},
      {R"({"resourcesPerNode": {"requests": {"nvidia.com/gpu": 1}}})", "spec.resourcesPerNode.requests.nvidia.com/gpu",
       "needs a limit"},
      {R"({"template": {"spec": {"containers": [{"name": "main"}]}}})", "spec.template.spec.containers",
       "container named 'trainer'"}};
  for (const Row& row : rows) {
    const auto found = api::validate(job_of(row.spec));
    ASSERT_EQ(found.size(), 1U) << row.spec;
    EXPECT_EQ(found[0].path, row.path);
    EXPECT_THAT(found[0].message, HasSubstr(row.message));
  }
}

}  // namespace
}  // namespace oarlock::control
