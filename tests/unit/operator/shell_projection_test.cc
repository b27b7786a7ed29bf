#include "operator/shell/projection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "common/contract.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "tests/support/builders.h"

namespace oarlock::control {
namespace {

using test::JobBuilder;
using Json = nlohmann::json;

// Applies the field filter as the informer does, so that a field that is missing in the filter fails a test.
CachedPod pod_from(const std::string& text) {
  const auto object = pod_fields().parse(text);
  EXPECT_TRUE(object) << object.error().message;
  return *project_pod(*object);
}

TEST(ProjectPod, ReadsARunningPod) {
  const CachedPod cached = pod_from(R"({
    "metadata": {"name": "j-1-0", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}],
      "labels": {"oarlock.dev/job-name": "j", "oarlock.dev/attempt": "1", "x": "y"},
      "ownerReferences": [{"uid": "a"}, {"uid": "b", "controller": true, "name": "j", "kind": "TrainingJob", "apiVersion": "oarlock.dev/v1alpha1"}]},
    "spec": {"nodeName": "node1", "containers": [{"name": "trainer"}]},
    "status": {"phase": "Running", "podIP": "10.1.1.1", "hostIP": "1.1.1.1",
      "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"},
                     {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}, {"type": "Other", "status": "True"}],
      "containerStatuses": [{"name": "trainer", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}})");
  Pod expected;
  expected.name = "j-1-0";
  expected.uid = "u";
  expected.resource_version = "7";
  expected.owner_uid = "b";
  expected.owner_is_job = true;
  expected.phase = PodPhase::kRunning;
  expected.scheduled = true;
  ASSERT_TRUE(from_rfc3339("2026-01-01T00:00:03Z", expected.scheduled_at.emplace()));
  ASSERT_TRUE(from_rfc3339("2026-01-01T00:00:00Z", expected.started_at.emplace()));
  expected.started = true;
  expected.ready = true;
  expected.pod_ip = "10.1.1.1";
  expected.node_name = "node1";
  EXPECT_EQ(cached.object, expected);
  EXPECT_EQ(cached.job, "j");
}

TEST(ProjectPod, RejectsLongerTextsThanKubernetesPermits) {
  const std::string longest(253, 'x');
  const auto project = [](const std::string& node, const std::string& address, const std::string& label,
                          const std::string& owner) {
    const Json pod = {{"metadata",
                       {{"labels", {{"oarlock.dev/job-name", label}}},
                        {"ownerReferences", {{{"controller", true}, {"uid", owner}}}}}},
                      {"spec", {{"nodeName", node}}},
                      {"status", {{"podIP", address}}}};
    return project_pod(pod);
  };
  EXPECT_TRUE(project(longest, "10.1.1.1", longest, std::string(128, 'u')));
  EXPECT_EQ(project(longest + "x", "", "", "").error().message, "spec.nodeName is longer than 253 bytes");
  EXPECT_EQ(project("", longest + "x", "", "").error().message, "status.podIP is longer than 253 bytes");
  EXPECT_EQ(project("", "", longest + "x", "").error().message, "the job's label is longer than 253 bytes");
  EXPECT_EQ(project("", "", "", std::string(129, 'u')).error().message, "the owner's uid is longer than 128 bytes");
}

TEST(ProjectPod, ReadsTerminationOfTrainer) {
  const Pod pod = pod_from(R"({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    "status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory",
      "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
      "containerStatuses": [
        {"name": "sidecar", "state": {"terminated": {"exitCode": 9}}},
        {"name": "trainer", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "last words",
          "finishedAt": "2026-01-02T03:04:05Z"}}}]}})")
                      .object;
  EXPECT_EQ(pod.phase, PodPhase::kFailed);
  EXPECT_EQ(pod.reason, "Evicted");
  EXPECT_EQ(pod.message, "low on memory");
  EXPECT_TRUE(pod.deleting);
  EXPECT_EQ(pod.disruption, "PreemptionByScheduler");
  ASSERT_TRUE(pod.trainer);
  EXPECT_EQ(pod.trainer->exit_code, 137);
  EXPECT_EQ(pod.trainer->reason, "OOMKilled");
  EXPECT_EQ(pod.trainer->message, "last words");
  EXPECT_EQ(to_rfc3339(*pod.trainer->finished_at), "2026-01-02T03:04:05Z");
}

TEST(ProjectPod, IgnoresTerminationOfSidecar) {
  const std::string sidecar = R"({"name": "sidecar", "state": {"terminated": {"exitCode": 9}}})";
  const auto trainer_of = [](const std::string& containers) {
    return pod_from(R"({"status": {"containerStatuses": [)" + containers + "]}}").object.trainer;
  };
  EXPECT_FALSE(trainer_of(sidecar + R"(, {"name": "trainer", "state": {"running": {}}})"));
  const auto ended = trainer_of(R"({"name": "trainer", "state": {"terminated": {"exitCode": 3}}}, )" + sidecar);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 3);
}

TEST(ProjectPod, ReadsStopRequestTime) {
  const auto stop_request = [](const std::string& metadata, const std::string& condition) {
    const Pod pod = pod_from(R"({"metadata": {)" + metadata + R"(}, "status": {"conditions": [{)" + condition +
                             R"("type": "DisruptionTarget", "status": "True"}]}})")
                        .object;
    return pod.stop_requested_at ? to_rfc3339(*pod.stop_requested_at) : "";
  };
  const std::string deleted = R"("deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30)";
  EXPECT_EQ(stop_request("", ""), "");
  EXPECT_EQ(stop_request(deleted, ""), "2026-01-01T00:00:30Z") << "the time stamp is the end of the grace period";
  EXPECT_EQ(stop_request("", R"("lastTransitionTime": "2026-01-01T00:00:10Z",)"), "2026-01-01T00:00:10Z");
  EXPECT_EQ(stop_request(deleted, R"("lastTransitionTime": "2026-01-01T00:00:10Z",)"), "2026-01-01T00:00:10Z");
  EXPECT_EQ(stop_request(deleted, R"("lastTransitionTime": "2026-01-01T00:00:50Z",)"), "2026-01-01T00:00:30Z");
  EXPECT_EQ(
      stop_request(R"("deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": -9223372036854775808)",
                   ""),
      "2026-01-01T00:01:00Z");
}

TEST(ProjectPod, ReadsWaitingReason) {
  const Pod pod = pod_from(R"({"status": {"phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available",
                    "lastTransitionTime": "2026-01-01T00:00:03Z"},
                   {"type": "DisruptionTarget", "status": "False", "reason": "X"}],
    "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}},
                              {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}],
    "containerStatuses": [{"name": "trainer", "state": {"waiting": {"reason": "PodInitializing"}}}]}})")
                      .object;
  EXPECT_FALSE(pod.scheduled);
  EXPECT_FALSE(pod.scheduled_at);
  EXPECT_EQ(pod.unscheduled_message, "0/3 nodes are available");
  EXPECT_EQ(pod.disruption, "");
  EXPECT_EQ(pod.waiting_reason, "ImagePullBackOff");
  EXPECT_EQ(pod.waiting_message, "no such image");
  EXPECT_FALSE(pod.trainer);
}

TEST(ProjectPod, AcceptsAnyJson) {
  for (const char* text : {"{}", R"({"metadata": 3, "status": [], "spec": "x"})",
                           R"({"status": {"conditions": {"type": "Ready"}, "phase": 7}})",
                           R"({"status": {"containerStatuses": [3, null, {"name": "trainer", "state": "x"}]}})"}) {
    EXPECT_EQ(pod_from(text).object.phase, PodPhase::kPending) << text;
  }
}

// A client that may write a pod's status may write any text.
TEST(ProjectPod, BoundsAndSanitizesTexts) {
  const std::string hostile = "\x1b[31m" + std::string(100000, 'x') + "\n";
  const Json text = {
      {"status",
       {{"phase", "Failed"},
        {"reason", hostile},
        {"message", hostile},
        {"conditions",
         {{{"type", "PodScheduled"}, {"status", "False"}, {"message", hostile}},
          {{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", hostile}}}},
        {"initContainerStatuses", {{{"state", {{"waiting", {{"reason", hostile}, {"message", hostile}}}}}}}},
        {"containerStatuses",
         {{{"name", "trainer"},
           {"state", {{"terminated", {{"exitCode", 4294967297}, {"reason", hostile}, {"message", hostile}}}}}}}}}}};
  const Pod pod = pod_from(text.dump()).object;
  for (const std::string* one : {&pod.reason, &pod.disruption, &pod.waiting_reason, &pod.trainer->reason}) {
    EXPECT_THAT(*one, ::testing::StartsWith(" [31mxxx"));
    EXPECT_LE(one->size(), 60u);
  }
  for (const std::string* one : {&pod.message, &pod.unscheduled_message, &pod.waiting_message}) {
    EXPECT_THAT(*one, ::testing::StartsWith(" [31mxxx"));
    EXPECT_LE(one->size(), 400u);
  }
  EXPECT_LE(pod.trainer->message.size(), 400u);
  EXPECT_EQ(pod.trainer->exit_code, std::numeric_limits<int>::max());
}

// Thousands of pods may end at the same time, each with 4 KiB.
TEST(ProjectPod, CompactsTerminationMessage) {
  const auto message_of = [](const std::string& text) {
    const Json state = {{"terminated", {{"exitCode", 1}, {"message", text}}}};
    return pod_from(Json{{"status", {{"containerStatuses", {{{"name", "trainer"}, {"state", state}}}}}}}.dump())
        .object.trainer->message;
  };
  EXPECT_EQ(message_of("a\nb\nlast\n"), "last");
  const TerminationMessage message{
      .rank = 3, .step = 41, .checkpoint_step = 40, .reason = "ConfigInvalid", .message = "no such file"};
  EXPECT_EQ(termination_message_from_json(message_of(to_json(message))), message);
  TerminationMessage longer = message;
  longer.message = std::string(3000, 'x');
  const std::string kept = message_of(to_json(longer));
  EXPECT_LE(kept.size(), 600u);
  EXPECT_EQ(termination_message_from_json(kept)->step, 41);
  longer.reason = std::string(2000, 'R');
  EXPECT_LE(message_of(to_json(longer)).size(), 700u);
}

TEST(ProjectService, ReadsItsOwner) {
  const auto object =
      service_fields().parse(R"({"metadata": {"name": "j", "uid": "u", "labels": {"oarlock.dev/job-name": "j"},
    "annotations": {"a": "b", "oarlock.dev/regroup-key": "0123456789abcdef"},
    "creationTimestamp": "1970-01-01T00:00:07Z", "ownerReferences": [{"uid": "b", "controller": true}]}, "spec": {"clusterIP": "None"}})");
  ASSERT_TRUE(object);
  const CachedService cached = *project_service(*object);
  EXPECT_EQ(cached.object, (Service{.name = "j",
                                    .uid = "u",
                                    .owner_uid = "b",
                                    .owner_is_job = false,
                                    .deleting = false,
                                    .created = SystemTime(std::chrono::seconds(7)),
                                    .regroup_key = "0123456789ab"}));
  EXPECT_EQ(cached.job, "j");
}

// The two annotations show which pods can form a group.
TEST(ProjectPod, HasTheKeyOfTheServiceWithWhichItWasCreated) {
  api::TrainingJob job;
  job.metadata.name = "j";
  job.metadata.namespace_name = "ns";
  job.spec.nodes = 2;
  job.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  const std::string key = "0123456789abcdef";
  for (const RegroupSecret& secret : {RegroupSecret{"token", regroup_key_id(key)}, RegroupSecret{}}) {
    const auto object = pod_fields().parse(PodFactory(job, 0, {}, secret).text(1));
    ASSERT_TRUE(object);
    EXPECT_EQ(project_pod(*object)->object.regroup_key, secret.key_id);
  }
}

TEST(ProjectPod, HasTheImagesThatTheOperatorHasChosen) {
  Job job = JobBuilder();
  job.spec.pod_template = "";
  const auto images = [&](const std::string& launcher) {
    const auto object = pod_fields().parse(PodFactory(job, 0, 1, {.image = "trainer:1"}, {}, {}, launcher).text(0));
    return project_pod(*object)->object.images;
  };
  EXPECT_EQ(images(""), (ChosenImages{"trainer:1", ""}));
  job.spec.image = "trainer:1";
  EXPECT_EQ(images("launcher:1"), (ChosenImages{"", "launcher:1"}));
  job.spec.image.clear();
  job.spec.pod_template = R"({"metadata": {"annotations": {"oarlock.dev/default-image": "a",
    "oarlock.dev/launcher-image": "b"}}, "spec": {"containers": [{"name": "trainer", "image": "mine:1"}]}})";
  EXPECT_EQ(images(""), ChosenImages{}) << "annotations of the template have no effect";
}

TEST(ProjectPod, HasTheNodesThatItAvoidsUntilItHasANode) {
  const AvoidedNodes nodes{.required = {"a"}, .preferred = {"b"}};
  auto body = PodFactory(with_avoided_nodes(JobBuilder(), nodes), 0).pod(0);
  const auto avoided = [&] { return project_pod(*pod_fields().parse(body.dump()))->object.avoided; };
  ASSERT_TRUE(avoided());
  EXPECT_EQ(*avoided(), nodes);
  body["spec"]["nodeName"] = "c";
  EXPECT_FALSE(avoided());
}

TEST(ProjectNetworkPolicy, ReadsOwnerAndSpecDigest) {
  const auto object = network_policy_fields().parse(R"({"metadata": {"name": "trainingjob-j", "uid": "u",
    "labels": {"oarlock.dev/job-name": "j"}, "ownerReferences": [
    {"uid": "b", "controller": true, "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "name": "j"}]},
    "spec": {"policyTypes": ["Ingress"], "podSelector": {}}})");
  ASSERT_TRUE(object);
  const CachedNetworkPolicy cached = *project_network_policy(*object);
  EXPECT_EQ(cached.object,
            (NetworkPolicy{.name = "trainingjob-j",
                           .uid = "u",
                           .owner_uid = "b",
                           .owner_is_job = true,
                           .deleting = false,
                           .digest = spec_digest({{"podSelector", nlohmann::json::object()},
                                                  {"policyTypes", nlohmann::json::array({"Ingress"})}})}));
  EXPECT_EQ(cached.job, "j");
}

TEST(ProjectPod, RecognizesOwnersByKindAndName) {
  const auto owned = [](const std::string& owner) {
    const std::string text =
        R"({"metadata": {"name": "j-1-0", "ownerReferences": [{"uid": "b", "controller": true, )" + owner + "}]}}";
    return pod_from(text).object.owner_is_job;
  };
  EXPECT_TRUE(owned(R"("apiVersion": "oarlock.dev/v1", "kind": "TrainingJob", "name": "j")"));
  EXPECT_FALSE(owned(R"("apiVersion": "oarlock.dev/v1", "kind": "TrainingJob", "name": "k")"));
  EXPECT_FALSE(owned(R"("apiVersion": "batch/v1", "kind": "TrainingJob", "name": "j")"));
  EXPECT_FALSE(owned(R"("apiVersion": "oarlock.dev/v1", "kind": "Other", "name": "j")"));
  const auto object = service_fields().parse(R"({"metadata": {"name": "j", "ownerReferences": [
    {"uid": "b", "controller": true, "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "name": "j"}]}})");
  ASSERT_TRUE(object);
  EXPECT_TRUE(project_service(*object)->object.owner_is_job);
}

TEST(ProjectJob, KeepsSpecAndStatus) {
  const auto object = job_fields().parse(R"({"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5", "generation": 2, "managedFields": [{"a": {}}]},
    "spec": {"nodes": 3, "template": {"spec": {"containers": [{"name": "trainer", "future": {"field": 1}}]}}},
    "status": {"phase": "Running", "attempt": 4}})");
  ASSERT_TRUE(object);
  EXPECT_FALSE((*object)["metadata"].contains("managedFields"));
  const Job job = project_job(*object);
  EXPECT_EQ(job.report, api::ReadReport{});
  EXPECT_EQ(job.metadata.uid, "u");
  EXPECT_EQ(job.metadata.generation, 2);
  EXPECT_EQ(job.spec.nodes, 3);
  EXPECT_THAT(job.spec.pod_template, ::testing::HasSubstr("future"));
  EXPECT_EQ(job.status.attempt, 4);
}

TEST(ProjectJob, ReadsTheWorkloadOfMultiKueue) {
  const auto named = [](const std::string& name) {
    const auto object =
        job_fields().parse(R"({"metadata": {"name": "j", "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": ")" +
                           name + R"(", "other": "x"}}})");
    return project_job(*object).metadata.prebuilt_workload;
  };
  EXPECT_EQ(named("trainingjob-j-1"), "trainingjob-j-1");
  EXPECT_EQ(named(std::string(254, 'x')), "") << "no object has such a name";
  // Older versions of Kueue set a label.
  const auto labeled = [](const char* metadata) {
    return project_job(*job_fields().parse(fmt::format(R"({{"metadata": {}}})", metadata))).metadata.prebuilt_workload;
  };
  EXPECT_EQ(labeled(R"({"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "a"}})"), "a");
  EXPECT_EQ(labeled(R"({"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "a"},
                        "annotations": {"kueue.x-k8s.io/prebuilt-workload-name": "b"}})"),
            "b");
}

std::string job_with(const std::string& spec, const std::string& status = "{}") {
  return R"({"metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5"}, "spec": )" + spec +
         R"(, "status": )" + status + "}";
}

// As the API server stores and serves {seed: 18446744073709551615}.
TEST(ProjectJob, KeepsTrainerTextVerbatim) {
  for (const std::string& trainer :
       {std::string(R"({"seed":18446744073709552000})"), std::string(R"({"a":1e400,"b":-0,"c":1.0,"d":[1E+2,0.10]})"),
        R"({"deep":)" + std::string(9900, '[') + std::string(9900, ']') + "}", std::string(R"({"s":"\ud800"})"),
        std::string(R"({"a":1,"a":2})")}) {
    const auto object =
        job_fields().parse(job_with(R"({"nodes": 2, "template": {"spec":{}}, "trainer": )" + trainer + "}"));
    ASSERT_TRUE(object) << object.error().message;
    const Job job = project_job(*object);
    EXPECT_EQ(job.report, api::ReadReport{}) << trainer.substr(0, 60);
    EXPECT_EQ(job.spec.trainer, trainer);
    EXPECT_EQ(job.spec.pod_template, R"({"spec":{}})");
  }
}

TEST(ProjectJob, UnreadableJobKeepsIdentityAndConditions) {
  const std::string deep = std::string(600, '[') + std::string(600, ']');
  const std::string text =
      job_with(R"({"nodes": 2, "future": )" + deep + "}", R"({"conditions": [{"type": "Running", "status": "True"}]})");
  const auto object = job_fields().parse(text);
  ASSERT_FALSE(object);
  const Job job = unreadable_job(*job_salvage_fields().parse(text), object.error());
  EXPECT_EQ(job.metadata.uid, "u");
  EXPECT_EQ(job.metadata.resource_version, "5");
  EXPECT_THAT(job.report.problem, ::testing::HasSubstr("nested deeper"));
  EXPECT_TRUE(job.report.has_conditions);
  EXPECT_EQ(job.status.conditions.size(), 1U);
}

TEST(ReadObjectMetadata, ReadsUidOfController) {
  const ObjectMetadata written = read_object_metadata(R"({"metadata": {"uid": "u", "resourceVersion": "5",
    "ownerReferences": [{"uid": "x"}, {"uid": "y", "controller": true}]}})");
  EXPECT_EQ(written.uid, "u");
  EXPECT_EQ(written.resource_version, "5");
  EXPECT_EQ(written.owner_uid, "y");
  EXPECT_EQ(read_object_metadata("not json").uid, "");
}

CachedNode node_from(const std::string& text) {
  const auto object = node_fields().parse(text);
  EXPECT_TRUE(object) << object.error().message;
  return project_node(*object);
}

TEST(ProjectNode, KeepsTheWarningOnly) {
  const std::string ready =
      R"("status": {"conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["x"]}]})";
  const auto with_taint = [&](const std::string& key) {
    return node_from(
               R"({"spec": {"unschedulable": true, "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}, {"key": ")" +
               key + R"(", "effect": "NoSchedule"}]}, )" + ready + "}")
        .warning;
  };
  EXPECT_EQ(with_taint("karpenter.sh/disrupted"), "taint karpenter.sh/disrupted");
  EXPECT_EQ(with_taint("other"), "cordoned");
  EXPECT_EQ(node_from(R"({"spec": {"taints": [{"key": "nvidia.com/gpu"}]}, )" + ready + "}").warning, "");
  const auto with_condition = [](const std::string& status) {
    return node_from(R"({"spec": {}, "status": {"conditions": [{"type": "VMEventScheduled", "status": ")" + status +
                     "\"}]}}")
        .warning;
  };
  EXPECT_EQ(with_condition("True"), "condition VMEventScheduled");
  EXPECT_EQ(with_condition("False"), "");
  for (const char* text :
       {"{}", "[]", R"({"spec": {"taints": [1, {"key": 2}], "unschedulable": "true"}, "status": []})"})
    EXPECT_EQ(node_from(text).warning, "") << text;
}

TEST(ProjectPod, ReadsWhetherANodeIsNominated) {
  const auto nominated = [](const std::string& name) {
    return pod_from(R"({"metadata": {"name": "j-0-0"}, "status": {"nominatedNodeName": ")" + name + "\"}}")
        .object.nominated;
  };
  EXPECT_TRUE(nominated("gpu-1"));
  EXPECT_FALSE(nominated(""));
}

}  // namespace
}  // namespace oarlock::control
