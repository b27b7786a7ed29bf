// The fields of Kueue's Workloads that the cache keeps.
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "api/rules.h"
#include "operator/shell/projection.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

// Applies the field filter as the informer does.
Result<CachedWorkload> workload_from(const Json& object) {
  const auto filtered = workload_fields().parse(object.dump());
  EXPECT_TRUE(filtered) << filtered.error().message;
  return project_workload(*filtered);
}

Json workload_condition(const std::string& type, const std::string& status, const std::string& reason = "") {
  return {{"type", type}, {"status", status}, {"reason", reason}, {"message", type + " is " + status}};
}

TEST(ProjectWorkload, ReadsAnAdmittedWorkload) {
  const auto cached = workload_from(Json::parse(R"({
    "metadata": {"name": "trainingjob-j-1", "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}],
      "labels": {"oarlock.dev/job-name": "j"}, "ownerReferences": [{"uid": "b", "controller": true,
        "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "name": "j"}]},
    "spec": {"queueName": "team", "podSets": [{"name": "nodes", "count": 4, "minCount": 2, "template": {"spec": {}}}]},
    "status": {"conditions": [
        {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "reserved"},
        {"type": "PodsReady", "status": "True", "reason": "Started", "message": "ready"},
        {"type": "Admitted", "status": "True", "reason": "Admitted", "message": "admitted"}],
      "admission": {"clusterQueue": "gpus", "podSetAssignments": [{"name": "nodes", "count": 3,
        "flavors": {"nvidia.com/gpu": "h200", "cpu": "default", "memory": "default"},
        "resourceUsage": {"cpu": "3"}, "topologyAssignment": {"levels": ["rack"], "slices": []}}]},
      "admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": [{"name": "nodes", "labels": {"l": "1"}}]},
        {"name": "d", "state": "Ready"}, {"name": "e", "podSetUpdates": [{"name": "nodes"}]}]}})"));
  ASSERT_TRUE(cached);
  Workload expected;
  expected.name = "trainingjob-j-1";
  expected.uid = "u";
  expected.owner_uid = "b";
  expected.resource_version = "7";
  expected.queue = "team";
  expected.nodes = 4;
  expected.has_quota = expected.admitted = expected.pods_ready = expected.has_checks = true;
  expected.reason = "Admitted";
  expected.message = "admitted";
  expected.admission = {.cluster_queue = "gpus",
                        .nodes = 3,
                        .flavors = {"default", "h200"},
                        .pod_updates = R"([{"labels":{"l":"1"},"name":"nodes"},{"name":"nodes"}])",
                        .has_topology = true};
  EXPECT_EQ(cached->object, expected);
  EXPECT_EQ(cached->job, "j");
}

TEST(ProjectWorkload, ExplainsTheWaitOrTheEviction) {
  const auto explain = [](const std::vector<Json>& conditions) {
    Json object = {{"status", {{"conditions", conditions}}}};
    const auto cached = workload_from(object);
    EXPECT_TRUE(cached);
    return cached->object.reason + ": " + cached->object.message;
  };
  const Json reserved = workload_condition("QuotaReserved", "True", "QuotaReserved");
  const Json pending = workload_condition("QuotaReserved", "False", "Pending");
  const Json evicted = workload_condition("Evicted", "True", "Preempted");
  EXPECT_EQ(explain({}), ": ");
  EXPECT_EQ(explain({pending}), "Pending: QuotaReserved is False");
  EXPECT_EQ(explain({pending, evicted}), "Pending: QuotaReserved is False") << "the eviction is over";
  for (const char* reason : {"Deactivated", "DeactivatedDueToAdmissionCheck"}) {
    EXPECT_EQ(explain({pending, workload_condition("Evicted", "True", reason)}),
              std::string(reason) + ": Evicted is True")
        << "it waits for an administrator";
  }
  EXPECT_EQ(explain({pending, workload_condition("Evicted", "False", "Deactivated")}),
            "Pending: QuotaReserved is False");
  EXPECT_EQ(explain({evicted, reserved, workload_condition("Admitted", "True", "Admitted")}),
            "Preempted: Evicted is True");
  EXPECT_EQ(explain({reserved, workload_condition("Evicted", "False", "QuotaReserved"),
                     workload_condition("Admitted", "False", "UnsatisfiedChecks")}),
            "UnsatisfiedChecks: Admitted is False");
  EXPECT_EQ(explain({reserved}), ": ") << "its checks are pending";
}

TEST(ProjectWorkload, ReadsEveryFlag) {
  const auto flags = [](const char* type, const char* status) {
    const Workload workload = workload_from({{"status", {{"conditions", {workload_condition(type, status)}}}}})->object;
    return std::vector<bool>{workload.has_quota, workload.admitted,   workload.evicted,
                             workload.finished,  workload.pods_ready, workload.requeued};
  };
  const char* kTypes[] = {"QuotaReserved", "Admitted", "Evicted", "Finished", "PodsReady", "Requeued"};
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    std::vector<bool> expected(std::size(kTypes));
    EXPECT_EQ(flags(kTypes[i], "False"), expected);
    EXPECT_EQ(flags(kTypes[i], "Unknown"), expected);
    expected[i] = true;
    EXPECT_EQ(flags(kTypes[i], "True"), expected);
  }
  EXPECT_TRUE(workload_from({{"metadata", {{"deletionTimestamp", "2026-01-01T00:00:00Z"}}}})->object.deleting);
}

TEST(ProjectWorkload, TheAdmissionIsThatOfTheReservedQuota) {
  Json object = {{"status",
                  {{"conditions", {workload_condition("QuotaReserved", "False", "Pending")}},
                   {"admission", {{"clusterQueue", "old"}, {"podSetAssignments", {{{"count", 3}}}}}}}}};
  EXPECT_EQ(workload_from(object)->object.admission, Admission{});
  object["status"]["conditions"] = {workload_condition("QuotaReserved", "True")};
  EXPECT_EQ(workload_from(object)->object.admission, (Admission{.cluster_queue = "old", .nodes = 3}));
  EXPECT_FALSE(workload_from(object)->object.admission.has_topology);
}

TEST(ProjectWorkload, AcceptsAnyJson) {
  const Json reserved = workload_condition("QuotaReserved", "True");
  for (const char* status :
       {"3", "[]", "{}", R"({"admission": 3})", R"({"admission": {"podSetAssignments": {}}})",
        R"({"admission": {"podSetAssignments": [3]}, "admissionChecks": {}})",
        R"({"admission": {"podSetAssignments": [{"flavors": [], "count": "x", "topologyAssignment": []}]}})",
        R"({"admission": {"podSetAssignments": [{"flavors": {"cpu": 3, "memory": null}}]}, "admissionChecks": [3]})",
        R"({"admission": {"clusterQueue": 7}, "admissionChecks": [{"podSetUpdates": {}}]})"}) {
    Json object = {{"spec", 3}, {"status", Json::parse(status)}};
    if (object["status"].is_object()) object["status"]["conditions"] = {3, nullptr, reserved};
    const auto cached = workload_from(object);
    ASSERT_TRUE(cached) << status;
    EXPECT_EQ(cached->object.has_quota, object["status"].is_object()) << status;
    EXPECT_EQ(cached->object.admission, Admission{}) << status;
  }
}

TEST(ProjectWorkload, NumbersOfNodesAreBounded) {
  const auto nodes = [](const Json& count) {
    const Json object = {{"spec", {{"podSets", {{{"count", count}}}}}},
                         {"status",
                          {{"conditions", {workload_condition("QuotaReserved", "True")}},
                           {"admission", {{"podSetAssignments", {{{"count", count}}}}}}}}};
    const Workload workload = workload_from(object)->object;
    EXPECT_EQ(workload.nodes, workload.admission.nodes) << count;
    return workload.nodes;
  };
  EXPECT_EQ(nodes(7), 7);
  EXPECT_EQ(nodes(-1), 0);
  EXPECT_EQ(nodes(std::numeric_limits<int64_t>::max()), api::rules::kMaxNodes);
  EXPECT_EQ(nodes(1e300), 0);
  EXPECT_EQ(nodes("x"), 0);
}

// Clients that may write a Workload's status may write any text.
TEST(ProjectWorkload, BoundsAndSanitizesTexts) {
  const std::string hostile = "\x1b[31m" + std::string(100000, 'x') + "\n";
  Json object = {{"status",
                  {{"conditions",
                    {{{"type", "QuotaReserved"}, {"status", "True"}},
                     {{"type", "Evicted"}, {"status", "True"}, {"reason", hostile}, {"message", hostile}}}}}}};
  const auto cached = workload_from(object);
  ASSERT_TRUE(cached);
  EXPECT_THAT(cached->object.reason, ::testing::StartsWith(" [31mxxx"));
  EXPECT_LE(cached->object.reason.size(), 60u);
  EXPECT_THAT(cached->object.message, ::testing::StartsWith(" [31mxxx"));
  EXPECT_LE(cached->object.message.size(), 400u);

  const std::string longest(253, 'x');
  const auto error_of = [&](const char* pointer, const Json& value) {
    Json changed = object;
    changed[Json::json_pointer(pointer)] = value;
    const auto projected = workload_from(changed);
    return projected ? "" : projected.error().message;
  };
  EXPECT_EQ(error_of("/spec/queueName", longest), "");
  EXPECT_EQ(error_of("/spec/queueName", longest + "x"), "spec.queueName is longer than 253 bytes");
  EXPECT_EQ(error_of("/status/admission/clusterQueue", longest + "x"),
            "status.admission.clusterQueue is longer than 253 bytes");
  EXPECT_EQ(error_of("/status/admission/podSetAssignments", {{{"flavors", {{"cpu", longest}}}}}), "");
  EXPECT_EQ(error_of("/status/admission/podSetAssignments", {{{"flavors", {{"cpu", longest + "x"}}}}}),
            "a flavor is longer than 253 bytes");
  EXPECT_EQ(error_of("/status/admissionChecks", {{{"podSetUpdates", {{{"labels", {{"a", hostile}}}}}}}}),
            "status.admissionChecks is longer than 65536 bytes");
  Json flavors = Json::object();
  for (int i = 0; i < 10000; ++i) flavors["r" + std::to_string(i)] = "f" + std::to_string(i);
  object["status"]["admission"]["podSetAssignments"] = {{{"flavors", flavors}}};
  EXPECT_LE(workload_from(object)->object.admission.flavors.size(), 64u);
}

}  // namespace
}  // namespace oarlock::control
