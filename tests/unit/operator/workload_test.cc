// The objects of Kueue: the Workload of a job, the changes of its status, and the pods of an admitted job.
#include "operator/core/workload.h"

#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "operator/core/desired.h"
#include "tests/support/builders.h"

namespace oarlock::control {
namespace {

using test::at_second;
using test::JobBuilder;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Change = UpdateWorkload::Change;

// ---- The Workload --------------------------------------------------------------------------------------------------

Job job_with(const std::string& pod_template) {
  Job job = JobBuilder().pod_template(pod_template).queue("team");
  job.metadata.namespace_name = "ns";
  return job;
}

Json template_pod(const Job& job) { return PodFactory(job, 0).pod(0); }

Json workload_of(const Job& job, const CreateWorkload& create = {"w", "team", 2},
                 const std::optional<WorkloadPriority>& priority = {}) {
  return desired_workload(job, create, template_pod(job), priority);
}

TEST(DesiredWorkload, RequestsQuotaForTheJobsPods) {
  const Job job = job_with(R"({"spec": {"containers": [{"name": "trainer", "image": "i",
      "resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": 8}}}]}})");
  EXPECT_EQ(workload_of(job, {workload_name(job), "team", 2}), Json::parse(R"({
    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
    "metadata": {"name": ")" + workload_name(job) + R"(", "namespace": "ns",
      "labels": {"oarlock.dev/job-name": "bert", "app.kubernetes.io/managed-by": "oarlock-operator",
                 "kueue.x-k8s.io/job-uid": "job-uid-1"},
      "ownerReferences": [{"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "name": "bert",
                           "uid": "job-uid-1", "controller": true, "blockOwnerDeletion": true}]},
    "spec": {"queueName": "team", "podSets": [{"name": "nodes", "count": 2, "template": {
      "metadata": {"labels": {"oarlock.dev/job-name": "bert"}},
      "spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "i",
        "resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": 8}}}]}}}]}})"));
}

TEST(DesiredWorkload, ALaterOneTakesOverTheQuota) {
  const Job job = job_with("{}");
  const Json workload = workload_of(job, {workload_name(job, 2), "team", 4, {}, workload_name(job)});
  EXPECT_EQ(workload["metadata"]["annotations"],
            (Json{{"kueue.x-k8s.io/workload-slice-replacement-for", "ns/" + workload_name(job)}}));
  for (const int slice : {1, 2, 17}) EXPECT_EQ(workload_slice(job, workload_name(job, slice)), slice);
  for (const char* suffix : {"-1", "-02", "-x", "-", "-2-2", "-99999999999"})
    EXPECT_EQ(workload_slice(job, workload_name(job) + suffix), std::nullopt) << suffix;
  EXPECT_EQ(workload_slice(job, "2"), std::nullopt);
}

TEST(DesiredWorkload, NameDependsOnTheUid) {
  Job job = JobBuilder();
  const std::string first = workload_name(job);
  EXPECT_EQ(first.substr(0, 17), "trainingjob-bert-");
  EXPECT_EQ(first.size(), 25u);
  job.metadata.uid = "another";
  EXPECT_NE(workload_name(job), first);
}

TEST(DesiredWorkload, TemplateHasOnlyFieldsThatDecideAboutPlacement) {
  const Job job =
      job_with(R"({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}, "annotations": {"a": "b"}},
    "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "gpu"}], "affinity": {"nodeAffinity": {}},
      "topologySpreadConstraints": [{"maxSkew": 1}], "schedulerName": "s", "runtimeClassName": "r",
      "priorityClassName": "p", "overhead": {"cpu": "1"}, "resources": {"limits": {"cpu": "3"}},
      "resourceClaims": [{"name": "c"}], "hostNetwork": true, "serviceAccountName": "s",
      "volumes": [{"name": "v", "emptyDir": {}}], "securityContext": {"runAsUser": 1},
      "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always", "command": ["x"]}],
      "containers": [{"name": "trainer", "image": "i", "env": [{"name": "SECRET", "value": "x"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": {"claims": [{"name": "c"}]}},
        {"name": "log", "image": "l"}]}})");
  const Json pod_set = workload_of(job)["spec"]["podSets"][0];
  EXPECT_EQ(pod_set["template"], Json::parse(R"({
    "metadata": {"labels": {"oarlock.dev/job-name": "bert"}},
    "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "gpu"}], "affinity": {"nodeAffinity": {}},
      "topologySpreadConstraints": [{"maxSkew": 1}], "schedulerName": "s", "runtimeClassName": "r",
      "priorityClassName": "p", "overhead": {"cpu": "1"}, "resources": {"limits": {"cpu": "3"}},
      "resourceClaims": [{"name": "c"}], "restartPolicy": "Never",
      "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}],
      "containers": [{"name": "trainer", "image": "i", "resources": {"claims": [{"name": "c"}]}},
        {"name": "log", "image": "l"}]}})"));
}

TEST(DesiredWorkload, HasTheOperatorsDefaultsOfAnEmptyTemplate) {
  Job job = job_with("");
  job.spec.resources_per_node.emplace().limits = R"({"nvidia.com/gpu": 8})";
  const Json containers = workload_of(job)["spec"]["podSets"][0]["template"]["spec"]["containers"];
  ASSERT_EQ(containers.size(), 1u);
  EXPECT_EQ(containers[0]["name"], "trainer");
  EXPECT_EQ(containers[0]["resources"]["limits"]["nvidia.com/gpu"], 8);
}

// Pods accept fractions as numbers, and YAML has no quotes around them. The schema of a Workload has integers and
// strings only.
TEST(DesiredWorkload, QuantitiesAreIntegersOrStrings) {
  const Job job = job_with(R"({"spec": {"overhead": {"cpu": 0.25}, "resources": {"limits": {"cpu": 1.5}},
      "initContainers": [{"name": "init", "resources": {"requests": {"cpu": 0.5}}}],
      "containers": [{"name": "trainer", "image": "i",
        "resources": {"requests": {"cpu": 0.5, "memory": 1000000000}, "limits": {"cpu": 1.0, "memory": "1Gi"}}}]}})");
  const Json spec = workload_of(job)["spec"]["podSets"][0]["template"]["spec"];
  EXPECT_EQ(spec["overhead"]["cpu"], "0.25");
  EXPECT_EQ(spec["resources"]["limits"]["cpu"], "1.5");
  EXPECT_EQ(spec["initContainers"][0]["resources"]["requests"]["cpu"], "0.5");
  const Json resources = spec["containers"][0]["resources"];
  EXPECT_EQ(resources["requests"], Json::parse(R"({"cpu": "0.5", "memory": 1000000000})"));
  EXPECT_EQ(resources["limits"], Json::parse(R"({"cpu": "1.0", "memory": "1Gi"})"));
}

TEST(DesiredWorkload, AcceptsAnyTemplate) {
  for (const char* text : {"not JSON", "[]", R"({"spec": 3})", R"({"metadata": 3, "spec": {"containers": 3}})",
                           R"({"spec": {"resources": [1], "overhead": 3, "containers": [3, null]}})",
                           R"({"spec": {"containers": [{"resources": {"limits": "x", "requests": [0.5]}}]}})"}) {
    const Json pod_set = workload_of(job_with(text))["spec"]["podSets"][0];
    EXPECT_TRUE(pod_set["template"]["spec"]["containers"].is_array()) << text;
  }
}

TEST(DesiredWorkload, HasTheMinimumOfPartialAdmission) {
  EXPECT_FALSE(workload_of(job_with(""))["spec"]["podSets"][0].contains("minCount"));
  const Json pod_set = workload_of(job_with(""), {"w", "q", 8, 3})["spec"]["podSets"][0];
  EXPECT_EQ(pod_set["count"], 8);
  EXPECT_EQ(pod_set["minCount"], 3);
}

TEST(DesiredWorkload, TopologyAnnotationsBecomeTheTopologyRequest) {
  const auto request_of = [](const std::string& annotations) {
    const Job job = job_with(R"({"metadata": {"annotations": {)" + annotations + "}}}");
    return workload_of(job)["spec"]["podSets"][0].value("topologyRequest", Json());
  };
  const std::string required = R"("kueue.x-k8s.io/podset-required-topology": "rack")";
  const std::string preferred = R"("kueue.x-k8s.io/podset-preferred-topology": "block")";
  const std::string unconstrained = R"("kueue.x-k8s.io/podset-unconstrained-topology": )";
  EXPECT_EQ(request_of(R"("a": "b")"), Json());
  EXPECT_EQ(request_of(required), (Json{{"required", "rack"}, {"podIndexLabel", "oarlock.dev/node-rank"}}));
  EXPECT_EQ(request_of(preferred), (Json{{"preferred", "block"}, {"podIndexLabel", "oarlock.dev/node-rank"}}));
  EXPECT_EQ(request_of(unconstrained + R"("true")"),
            (Json{{"unconstrained", true}, {"podIndexLabel", "oarlock.dev/node-rank"}}));
  EXPECT_EQ(request_of(unconstrained + R"("false")"), Json());
  EXPECT_EQ(request_of(preferred + "," + required)["required"], "rack") << "Kueue permits only one of them";
  EXPECT_FALSE(request_of(preferred + "," + required).contains("preferred"));
}

TEST(DesiredWorkload, HasThePriorityOfItsClass) {
  EXPECT_FALSE(workload_of(job_with(""))["spec"].contains("priority"));
  const WorkloadPriority priority{kKueueGroup, "WorkloadPriorityClass", "high", -5};
  const Json spec = workload_of(job_with(""), {"w", "q", 1}, priority)["spec"];
  EXPECT_EQ(spec["priority"], -5);
  EXPECT_EQ(spec["priorityClassRef"],
            Json::parse(R"({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"})"));
}

TEST(DesiredWorkload, TheLabelOfTheJobPrecedesThePriorityClassOfItsPods) {
  Job job = job_with(R"({"spec": {"priorityClassName": "pods"}})");
  const auto of_pods = find_priority(job, template_pod(job));
  ASSERT_TRUE(of_pods);
  EXPECT_EQ(of_pods->group, "scheduling.k8s.io");
  EXPECT_EQ(of_pods->kind, "PriorityClass");
  EXPECT_EQ(of_pods->name, "pods");
  job.metadata.priority_class = "jobs";
  const auto of_job = find_priority(job, template_pod(job));
  ASSERT_TRUE(of_job);
  EXPECT_EQ(of_job->group, "kueue.x-k8s.io");
  EXPECT_EQ(of_job->kind, "WorkloadPriorityClass");
  EXPECT_EQ(of_job->name, "jobs");
  EXPECT_FALSE(find_priority(job_with(""), template_pod(job_with(""))));
}

TEST(DesiredWorkload, AdmitsPodsWhileItIsAdmittedAndNothingElse) {
  Workload admitted;
  admitted.has_quota = true;
  EXPECT_FALSE(admits_pods(admitted)) << "its checks are pending";
  admitted.admitted = true;
  EXPECT_TRUE(admits_pods(admitted));
  for (bool Workload::* end : {&Workload::evicted, &Workload::finished, &Workload::deleting}) {
    Workload ended = admitted;
    ended.*end = true;
    EXPECT_FALSE(admits_pods(ended));
  }
}

// ---- Changes of the status -----------------------------------------------------------------------------------------

constexpr char kEarlier[] = "2026-01-01T00:00:00Z";
constexpr char kNow[] = "2026-11-21T10:00:05Z";  // at_second(5)

Json condition(const std::string& type, const std::string& status, const std::string& reason,
               const std::string& message = "m", const std::string& time = kEarlier) {
  return {{"type", type}, {"status", status}, {"reason", reason}, {"message", message}, {"lastTransitionTime", time}};
}

Json live_workload(std::vector<Json> conditions) {
  return {{"metadata", {{"uid", "u"}, {"resourceVersion", "7"}, {"name", "w"}}},
          {"spec", {{"queueName", "team"}}},
          {"status", {{"conditions", std::move(conditions)}, {"admission", {{"clusterQueue", "c"}}}}}};
}

Json evicted_workload(const std::string& reason) {
  return live_workload({condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted"),
                        condition("PodsReady", "True", "Started"),
                        condition("Evicted", "True", reason, "why it was evicted")});
}

std::optional<Json> patch_of(const Json& live, Change change, const std::string& message = "") {
  return workload_status_patch(live, {"w", "u", change, at_second(5), message});
}

Json find(const Json& patch, const std::string& type) {
  Json found;
  for (const Json& one : patch["status"]["conditions"]) {
    if (one["type"] != type) continue;
    EXPECT_TRUE(found.is_null()) << type << " occurs twice";
    found = one;
  }
  return found;
}

TEST(WorkloadStatusPatch, IsForTheObservedObjectOnly) {
  for (const Change change : {Change::kRelease, Change::kReady, Change::kNotReady, Change::kSucceed, Change::kFail}) {
    const auto patch = patch_of(evicted_workload("Preempted"), change);
    ASSERT_TRUE(patch);
    EXPECT_EQ((*patch)["metadata"], Json::parse(R"({"uid": "u", "resourceVersion": "7"})"));
    Json replaced = evicted_workload("Preempted");
    replaced["metadata"]["uid"] = "v";
    EXPECT_FALSE(patch_of(replaced, change)) << "another Workload of this name";
    EXPECT_FALSE(patch_of(Json(), change));
  }
}

// A merge patch replaces the whole list.
TEST(WorkloadStatusPatch, KeepsTheOtherConditions) {
  const Json foreign = condition("DeactivationTarget", "False", "X", "kept");
  for (const Change change : {Change::kRelease, Change::kReady, Change::kNotReady, Change::kSucceed, Change::kFail}) {
    Json live = evicted_workload("Preempted");
    live["status"]["conditions"].push_back(foreign);
    const auto patch = patch_of(live, change);
    ASSERT_TRUE(patch);
    EXPECT_EQ(find(*patch, "DeactivationTarget"), foreign);
    EXPECT_EQ(find(*patch, "Evicted"), condition("Evicted", "True", "Preempted", "why it was evicted"));
  }
}

TEST(WorkloadStatusPatch, ReleasesTheQuotaInOnePatch) {
  const auto patch = patch_of(evicted_workload("Preempted"), Change::kRelease);
  ASSERT_TRUE(patch);
  ASSERT_TRUE((*patch)["status"].contains("admission"));
  EXPECT_TRUE((*patch)["status"]["admission"].is_null());
  EXPECT_EQ(find(*patch, "QuotaReserved"), condition("QuotaReserved", "False", "Pending", "why it was evicted", kNow));
  EXPECT_EQ(find(*patch, "Admitted"),
            condition("Admitted", "False", "NoReservation", "The workload has no reservation", kNow));
  EXPECT_EQ(find(*patch, "Requeued"), condition("Requeued", "True", "Preempted", "why it was evicted", kNow));
  EXPECT_EQ(find(*patch, "PodsReady")["status"], "False");
  EXPECT_EQ(find(*patch, "PodsReady")["reason"], "WaitForStart");
  EXPECT_EQ((*patch)["status"]["conditions"].size(), 5u);
}

// Kueue queues a Workload with Requeued False again only for certain reasons.
TEST(WorkloadStatusPatch, TheReasonOfTheEvictionDecidesAboutTheQueue) {
  struct Row {
    const char* evicted;
    const char* status;
    const char* reason;
  };
  for (const Row& row :
       {Row{"Preempted", "True", "Preempted"}, Row{"NodeFailures", "True", "NodeFailures"},
        Row{"PodsReadyTimeout", "False", "PodsReadyTimeout"}, Row{"AdmissionCheck", "False", "AdmissionCheck"},
        Row{"ClusterQueueStopped", "False", "ClusterQueueStopped"},
        Row{"LocalQueueStopped", "False", "LocalQueueStopped"}, Row{"Deactivated", "False", "Deactivated"},
        Row{"DeactivatedDueToAdmissionCheck", "False", "Deactivated"}}) {
    const auto patch = patch_of(evicted_workload(row.evicted), Change::kRelease);
    ASSERT_TRUE(patch);
    EXPECT_EQ(find(*patch, "Requeued")["status"], row.status) << row.evicted;
    EXPECT_EQ(find(*patch, "Requeued")["reason"], row.reason) << row.evicted;
    EXPECT_EQ(find(*patch, "Evicted")["reason"], row.evicted);
  }
}

TEST(WorkloadStatusPatch, ReleasesOnlyAnEvictedWorkloadWithQuota) {
  const Json evicted = condition("Evicted", "True", "Preempted");
  const Json reserved = condition("QuotaReserved", "True", "QuotaReserved");
  EXPECT_FALSE(patch_of(live_workload({reserved}), Change::kRelease));
  EXPECT_FALSE(patch_of(live_workload({evicted}), Change::kRelease));
  EXPECT_FALSE(patch_of(live_workload({evicted, condition("QuotaReserved", "False", "Pending")}), Change::kRelease))
      << "it was released before";
  EXPECT_FALSE(patch_of(live_workload({condition("Evicted", "False", "QuotaReserved"), reserved}), Change::kRelease))
      << "it was admitted again";
  EXPECT_TRUE(patch_of(live_workload({evicted, reserved}), Change::kRelease)) << "it was never admitted";
}

TEST(WorkloadStatusPatch, TransitionTimesChangeWithTheStatus) {
  Json live = evicted_workload("Preempted");
  live["status"]["conditions"].push_back(condition("Requeued", "True", "BackoffFinished"));
  for (Json& one : live["status"]["conditions"]) one["observedGeneration"] = 3;
  const auto released = patch_of(live, Change::kRelease);
  ASSERT_TRUE(released);
  EXPECT_EQ(find(*released, "Requeued")["lastTransitionTime"], kEarlier) << "it was true";
  EXPECT_EQ(find(*released, "Requeued")["reason"], "Preempted");
  EXPECT_EQ(find(*released, "Requeued")["observedGeneration"], 3);
  EXPECT_EQ(find(*released, "QuotaReserved")["lastTransitionTime"], kNow);
  EXPECT_EQ(find(*released, "PodsReady")["lastTransitionTime"], kNow);

  const auto ready = patch_of(evicted_workload("Preempted"), Change::kReady);
  EXPECT_EQ(find(*ready, "PodsReady")["lastTransitionTime"], kEarlier);
  const auto first = patch_of(live_workload({}), Change::kReady);
  EXPECT_EQ(find(*first, "PodsReady")["lastTransitionTime"], kNow);
}

TEST(WorkloadStatusPatch, ReportsWhetherPodsAreReady) {
  const auto reason = [](std::vector<Json> before, Change change) {
    const auto patch = patch_of(live_workload(std::move(before)), change);
    if (!patch) return std::string();
    EXPECT_FALSE((*patch)["status"].contains("admission"));
    const Json found = find(*patch, "PodsReady");
    return found["status"].get<std::string>() + "/" + found["reason"].get<std::string>();
  };
  EXPECT_EQ(reason({}, Change::kReady), "True/Started");
  EXPECT_EQ(reason({condition("PodsReady", "False", "WaitForStart")}, Change::kReady), "True/Started");
  EXPECT_EQ(reason({condition("PodsReady", "True", "Started")}, Change::kNotReady), "False/WaitForRecovery");
  EXPECT_EQ(reason({condition("PodsReady", "False", "WaitForRecovery")}, Change::kReady), "True/Recovered");
  EXPECT_EQ(reason({condition("PodsReady", "True", "Recovered")}, Change::kNotReady), "False/WaitForRecovery");
}

TEST(WorkloadStatusPatch, FinishesWithTheResult) {
  const auto succeeded = patch_of(live_workload({}), Change::kSucceed, "all pods ended");
  ASSERT_TRUE(succeeded);
  EXPECT_EQ((*succeeded)["status"],
            (Json{{"conditions", {condition("Finished", "True", "Succeeded", "all pods ended", kNow)}}}));
  const auto failed = patch_of(live_workload({}), Change::kFail, "pod lost");
  EXPECT_EQ(find(*failed, "Finished"), condition("Finished", "True", "Failed", "pod lost", kNow));
  const auto longest = patch_of(live_workload({}), Change::kFail, std::string(100'000, 'x'));
  EXPECT_EQ(find(*longest, "Finished")["message"].get<std::string>().size(), 32768u);
}

TEST(WorkloadStatusPatch, AcceptsAnyStatus) {
  for (const char* status : {"3", "null", R"({"conditions": {}})", R"({"conditions": "x"})", R"({"conditions": [3]})",
                             R"({"conditions": [{"type": "PodsReady"}, {"type": 7}, null]})"}) {
    Json live = live_workload({});
    live["status"] = Json::parse(status);
    EXPECT_FALSE(patch_of(live, Change::kRelease)) << status;
    EXPECT_TRUE(patch_of(live, Change::kReady)) << status;
  }
}

// ---- Pods of an admitted job ---------------------------------------------------------------------------------------

Json flavor(const std::string& name, const Json& labels, const Json& tolerations = nullptr) {
  return {{"metadata", {{"name", name}}}, {"spec", {{"nodeLabels", labels}, {"tolerations", tolerations}}}};
}

// Returns the pod of the job; with an error, a string with its message.
Json placed_pod(const std::string& pod_template, const Admission& admission, const std::vector<Json>& flavors) {
  const auto placed = with_admission(job_with(pod_template), admission, flavors);
  if (placed) return template_pod(*placed);
  EXPECT_EQ(placed.error().code, ExitCode::kConfig);
  return placed.error().message;
}

constexpr char kTemplate[] = R"({"metadata": {"labels": {"a": "1"}}, "spec": {"nodeSelector": {"disk": "ssd"},
  "tolerations": [{"key": "mine"}], "containers": [{"name": "trainer", "image": "i"}]}})";

TEST(WithAdmission, ChangesNothingWithoutFlavors) {
  const Job job = job_with(test::kMinimalTemplate);
  const auto placed = with_admission(job, {"c", 2}, {});
  ASSERT_TRUE(placed);
  EXPECT_EQ(template_pod(*placed), template_pod(job));
}

TEST(WithAdmission, AddsLabelsAndTolerationsOfTheFlavors) {
  const Json gpu = {{"key", "gpu"}, {"operator", "Exists"}};
  Json pod = placed_pod(kTemplate, {"c", 2},
                        {flavor("a", {{"pool", "h200"}}, {gpu}),
                         flavor("b", {{"pool", "h200"}, {"zone", "x"}}, {gpu, {{"key", "mine"}}})});
  EXPECT_EQ(pod["spec"]["nodeSelector"], Json::parse(R"({"disk": "ssd", "pool": "h200", "zone": "x"})"));
  EXPECT_EQ(pod["spec"]["tolerations"], Json::array({{{"key", "mine"}}, gpu})) << "without duplicates";
}

TEST(WithAdmission, AddsTheUpdatesOfAdmissionChecks) {
  Admission admission{"c", 2};
  admission.pod_updates = R"([{"name": "nodes", "labels": {"l": "1"}, "annotations": {"p": "request-1"},
    "nodeSelector": {"n": "2"}, "tolerations": [{"key": "new"}]}, {"name": "nodes", "labels": {"m": "3"}}])";
  Json pod = placed_pod(kTemplate, admission, {flavor("a", {{"pool", "h200"}})});
  EXPECT_EQ(pod["metadata"]["labels"]["l"], "1");
  EXPECT_EQ(pod["metadata"]["labels"]["m"], "3");
  EXPECT_EQ(pod["metadata"]["labels"]["a"], "1");
  EXPECT_EQ(pod["metadata"]["annotations"]["p"], "request-1");
  EXPECT_EQ(pod["spec"]["nodeSelector"], Json::parse(R"({"disk": "ssd", "n": "2", "pool": "h200"})"));
  EXPECT_EQ(pod["spec"]["tolerations"], Json::parse(R"([{"key": "mine"}, {"key": "new"}])"));
  for (const char* malformed : {"", "[", "3", "[3, null]", R"([{"labels": 3, "nodeSelector": []}])"}) {
    admission.pod_updates = malformed;
    EXPECT_EQ(placed_pod(kTemplate, admission, {}), template_pod(job_with(kTemplate))) << malformed;
  }
}

TEST(WithAdmission, ContradictionsAreErrors) {
  const Json of_template = placed_pod(kTemplate, {"c", 2}, {flavor("slow", {{"disk", "hdd"}})});
  EXPECT_THAT(of_template.get<std::string>(), HasSubstr("ResourceFlavor slow requires another value of disk in the "
                                                        "nodeSelector of the pods than spec.template"));
  const Json of_flavors = placed_pod(kTemplate, {"c", 2}, {flavor("x", {{"zone", "x"}}), flavor("y", {{"zone", "y"}})});
  EXPECT_THAT(of_flavors.get<std::string>(), HasSubstr("ResourceFlavor y requires another value of zone"));
  Admission admission{"c", 2};
  for (const auto& [update, field] :
       {std::pair(R"([{"labels": {"a": "2"}}])", "a in the labels"),
        std::pair(R"([{"nodeSelector": {"disk": "x"}}])", "disk in the nodeSelector"),
        std::pair(R"([{"annotations": {"n": "1"}}, {"annotations": {"n": "2"}}])", "n in the annotations")}) {
    admission.pod_updates = update;
    const Json message = placed_pod(kTemplate, admission, {});
    ASSERT_TRUE(message.is_string()) << update;
    EXPECT_THAT(message.get<std::string>(), HasSubstr("an admission check requires another value of "));
    EXPECT_THAT(message.get<std::string>(), HasSubstr(field));
  }
}

TEST(WithAdmission, ATopologyHoldsEachPodUntilKueuePlacesIt) {
  Admission admission{"c", 2};
  admission.has_topology = true;
  const Job job = job_with(kTemplate);
  Json pod = placed_pod(kTemplate, admission, {});
  EXPECT_EQ(pod["spec"]["schedulingGates"], Json::parse(R"([{"name": "kueue.x-k8s.io/topology"}])"));
  EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "nodes");
  EXPECT_EQ(pod["metadata"]["labels"]["a"], "1");
  Json annotations = pod["metadata"]["annotations"];
  EXPECT_EQ(annotations["kueue.x-k8s.io/workload"], workload_name(job));
  EXPECT_EQ(annotations["kueue.x-k8s.io/podset-unconstrained-topology"], "true") << "the template has no request";

  Json required = placed_pod(
      R"({"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
          "spec": {"schedulingGates": [{"name": "mine"}, {"name": "kueue.x-k8s.io/topology"}]}})",
      admission, {});
  EXPECT_FALSE(required["metadata"]["annotations"].contains("kueue.x-k8s.io/podset-unconstrained-topology"));
  EXPECT_EQ(required["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"], "rack");
  EXPECT_EQ(required["spec"]["schedulingGates"].size(), 2u) << "the gate is there once";
}

// A pod without the node labels of its flavor would run on nodes whose quota another flavor has.
TEST(WithAdmission, PlacesPodsOfAnyTemplate) {
  Admission admission{"c", 2};
  admission.has_topology = true;
  const std::vector<Json> flavors = {flavor("a", {{"pool", "h200"}}, {{{"key", "gpu"}}})};
  for (const char* text :
       {"", "{}", "not JSON", "[]", R"({"spec": {"replicas": 1e400}})", R"({"metadata": null, "spec": null})",
        R"({"metadata": 3, "spec": "x"})", R"({"metadata": {"labels": null, "annotations": null}})",
        R"({"metadata": {"labels": "x", "annotations": [1]}})",
        R"({"spec": {"nodeSelector": null, "tolerations": null, "schedulingGates": null}})",
        R"({"spec": {"nodeSelector": [1], "tolerations": {"a": 1}, "schedulingGates": "x"}})"}) {
    Json pod = placed_pod(text, admission, flavors);
    ASSERT_TRUE(pod.is_object()) << text;
    EXPECT_EQ(pod["spec"]["nodeSelector"], Json::parse(R"({"pool": "h200"})")) << text;
    EXPECT_EQ(pod["spec"]["tolerations"], Json::parse(R"([{"key": "gpu"}])")) << text;
    EXPECT_EQ(pod["spec"]["schedulingGates"].size(), 1u) << text;
    EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "nodes") << text;
  }
}

// A null removes a default of the operator.
TEST(WithAdmission, KeepsTheNullsOfTheTemplate) {
  const char* text = R"({"spec": {"affinity": null, "securityContext": null, "containers": [{"name": "trainer",
    "securityContext": null}]}})";
  const auto placed = with_admission(job_with(text), {"c", 2}, {flavor("a", {{"pool", "h200"}})});
  ASSERT_TRUE(placed);
  const Json given = Json::parse(placed->spec.pod_template);
  EXPECT_TRUE(given["spec"].contains("affinity"));
  EXPECT_TRUE(given["spec"]["affinity"].is_null());
  Json expected = template_pod(job_with(text));
  expected["spec"]["nodeSelector"] = {{"pool", "h200"}};
  EXPECT_EQ(template_pod(*placed), expected);
}

TEST(WithAdmission, AcceptsAnyFlavor) {
  for (const char* text : {"{}", "null", "3", R"({"spec": 3})", R"({"spec": {"nodeLabels": [], "tolerations": {}}})"})
    EXPECT_EQ(placed_pod(kTemplate, {"c", 2}, {Json::parse(text)}), template_pod(job_with(kTemplate))) << text;
}

}  // namespace
}  // namespace oarlock::control
