#include "api/codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using nlohmann::json;

json minimal() {
  return json::parse(R"({
    "apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "bert", "namespace": "ml", "uid": "u", "resourceVersion": "7", "generation": 3},
    "spec": {"template": {"spec": {"containers": [{"name": "trainer"}]}}}})");
}

api::Status full_status() {
  api::Status status;
  status.phase = api::Phase::kRestarting;
  status.conditions = {{"Pending", false, "PodsStarting", "0 of 2", at_second(1)},
                       {"Restarting", true, "OOMKilled", "m", at_second(2)}};
  status.observed_generation = 3;
  status.world_size = 4;
  status.attempt = 2;
  status.nodes = {2, 2, 1, 0, 1, "1/2"};
  status.finished_ranks = api::FinishedRanks{2, "0-2,5"};
  status.restarts = {2, 1, {{"OOMKilled", 1}, {"Disrupted", 1}}};
  status.progress = api::Progress{10, 100, 8, "10%", 0.25, 1234.5, at_second(900), at_second(3), at_second(2)};
  status.launcher = api::InjectedLauncher{"launcher:1", ""};
  status.start_time = at_second(1);
  status.attempt_start_time = at_second(2);
  status.completion_time = at_second(4);
  status.attempts = {
      {0, at_second(1), at_second(2), "OOMKilled", "m", "bert-0-1", "node-1", 1, 137, "", 1, 900, 100, 12},
      {1, std::nullopt, at_second(3), "PeerLost", "n", "", "", std::nullopt, std::nullopt, "", std::nullopt,
       std::nullopt, std::nullopt, std::nullopt}};
  return status;
}

TEST(Codec, SetsDefaultsOfAbsentFields) {
  const auto job = api::training_job_from_json(minimal());
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->metadata.namespace_name, "ml");
  EXPECT_EQ(job->metadata.resource_version, "7");
  EXPECT_EQ(job->metadata.generation, 3);
  EXPECT_EQ(job->spec.nodes, 1);
  EXPECT_EQ(job->spec.processes_per_node, 1);
  EXPECT_EQ(job->spec.failure_policy.max_restarts, 3);
  EXPECT_EQ(job->spec.rendezvous.port, 29500);
  EXPECT_EQ(job->spec.stall_policy.timeout_seconds, 600);
  EXPECT_FALSE(job->spec.suspend);
  EXPECT_EQ(job->spec.trainer, "");
  EXPECT_EQ(job->status, api::Status{});
}

TEST(Codec, PreservesTemplateAndTrainerVerbatim) {
  json object = minimal();
  object["spec"]["template"]["spec"]["fieldOfNextYear"] = {{"deep", {1, 2.5, nullptr, "x"}}};
  object["spec"]["trainer"] = {{"optimizer", {{"lr", 1e-4}}}, {"notYetInvented", true}};
  const auto job = api::training_job_from_json(object);
  ASSERT_TRUE(job);
  EXPECT_EQ(json::parse(job->spec.pod_template), object["spec"]["template"]);
  EXPECT_EQ(json::parse(job->spec.trainer), object["spec"]["trainer"]);
  EXPECT_EQ(api::to_json(*job)["spec"]["template"], object["spec"]["template"]);
}

TEST(Codec, ReadsBinaryValuesAsJsonText) {
  const std::string trainer = R"({"seed":18446744073709552000,"lr":1e400,"lr":1.10})";
  json object = minimal();
  object["spec"]["trainer"] = json::binary({trainer.begin(), trainer.end()});
  const auto job = api::training_job_from_json(object);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->spec.trainer, trainer);
}

// Creating the pods of such a template would overflow the stack of the operator.
TEST(Codec, RejectsDeeplyNestedTemplate) {
  const auto problem_of = [](int depth) {
    const std::string text = R"({"s":"[[\\\"{{","x":)" + std::string(static_cast<size_t>(depth), '[') +
                             std::string(static_cast<size_t>(depth), ']') + "}";
    json object = minimal();
    object["spec"]["template"] = json::binary({text.begin(), text.end()});
    object["spec"]["trainer"] = object["spec"]["template"];
    return api::read_training_job(object).report.problem;
  };
  EXPECT_EQ(problem_of(99), "");
  EXPECT_EQ(problem_of(100), "spec.template: nested deeper than 100 levels");
  EXPECT_EQ(problem_of(9900), "spec.template: nested deeper than 100 levels");
}

TEST(Codec, IgnoresAndReportsUnknownFields) {
  json object = minimal();
  object["spec"]["quantumPolicy"] = {{"entangle", true}};
  object["spec"]["stallPolicy"] = {{"timeoutSeconds", 60}, {"patience", "long"}};
  object["metadata"]["labels"] = {{"a", "b"}};
  object["status"] = {{"goodput", 1}};
  const api::TrainingJob job = api::training_job_from_json(object).value();
  EXPECT_EQ(job.report.unknown, (std::vector<std::string>{"spec.stallPolicy.patience: unknown field",
                                                          "spec.quantumPolicy: unknown field"}));
  EXPECT_EQ(job.spec.stall_policy.timeout_seconds, 60);
  EXPECT_EQ(job.metadata, api::training_job_from_json(minimal())->metadata);
}

// A newer version wrote the object, and the operator was then rolled back to this version.
TEST(Codec, SetsDefaultsOfUnknownEnumerationValues) {
  json object = minimal();
  object["spec"]["cleanPodPolicy"] = "Archive";
  object["spec"]["successPolicy"] = "Majority";
  object["spec"]["processesPerNode"] = "perSocket";
  object["spec"]["launcher"] = "ImageVolume";
  object["spec"]["failurePolicy"] = {{"maxRestarts", 7}, {"rules", json::parse(R"([
        {"action": "Fail", "onPodReasons": ["OOMKilled"]},
        {"action": "Snooze", "onPodReasons": ["Evicted"]},
        {"action": "Fail", "onExitCodes": {"operator": "Between", "values": [3, 9]}},
        {"action": "Fail", "onPodReasons": ["A"], "onNodes": ["n"]},
        {"action": "Fail", "onPodConditions": [{"type": "NodeUnhealthy", "status": "True"}]},
        {"action": "Fail", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]},
        {"action": "RestartFree", "onExitCodes": {"operator": "In", "values": [42]}}])")}};
  const auto read = api::training_job_from_json(object);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->spec.clean_pod_policy, api::CleanPodPolicy::kRunning);
  EXPECT_EQ(read->spec.success_policy, api::SuccessPolicy::kAllRanks);
  EXPECT_EQ(read->spec.processes_per_node, 1);
  EXPECT_EQ(read->spec.launcher, api::LauncherInjection::kAuto);
  EXPECT_EQ(read->spec.failure_policy.max_restarts, 7);
  ASSERT_EQ(read->spec.failure_policy.rules.size(), 2U);
  EXPECT_EQ(read->spec.failure_policy.rules[1].action, api::FailureAction::kRestartFree);
  EXPECT_EQ(read->report.unknown,
            (std::vector<std::string>{
                R"(spec.processesPerNode: expected an integer or auto, got "perSocket")",
                R"(spec.launcher: unknown value "ImageVolume")",
                R"(spec.failurePolicy.rules[1].action: unknown value "Snooze")",
                R"(spec.failurePolicy.rules[2].onExitCodes.operator: unknown value "Between")",
                "spec.failurePolicy.rules[3].onNodes: unknown field",
                R"(spec.failurePolicy.rules[4].onPodConditions[0].type: unknown value "NodeUnhealthy")",
                R"(spec.failurePolicy.rules[5].onPodConditions[0].status: unknown value "False")",
                R"(spec.successPolicy: unknown value "Majority")", R"(spec.cleanPodPolicy: unknown value "Archive")"}));
}

TEST(Codec, DerivesUnknownPhaseFromStatus) {
  struct Case {
    const char* status;
    api::Phase phase;
  };
  const Case cases[] = {
      {.status = R"({"phase": "Queued", "attempt": 3})", .phase = api::Phase::kPending},
      {.status = R"({"phase": "Queued", "conditions": [{"type": "Queued", "status": "True"}]})",
       .phase = api::Phase::kPending},
      {.status = R"({"phase": "Held", "conditions": [{"type": "Suspended", "status": "True"}]})",
       .phase = api::Phase::kSuspended},
      {.status = R"({"phase": "Archived", "completionTime": "2026-01-01T00:00:00Z",
           "conditions": [{"type": "Running", "status": "True"}, {"type": "Complete", "status": "True"}]})",
       .phase = api::Phase::kComplete},
      {.status = R"({"phase": "Cancelled", "completionTime": "2026-01-01T00:00:00Z"})", .phase = api::Phase::kFailed},
      {.status = R"({"phase": "Shrinking", "conditions": [{"type": "Complete", "status": "True"}]})",
       .phase = api::Phase::kPending},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.status);
    json object = minimal();
    object["status"] = json::parse(test.status);
    const auto job = api::training_job_from_json(object);
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->status.phase, test.phase);
    ASSERT_EQ(job->report.unknown.size(), 1U);
    EXPECT_EQ(job->report.unknown[0].find("status.phase: unknown value"), 0U);
    // Members that are not updated stay as the newer version wrote them.
    object.merge_patch({{"status", api::status_patch(job->metadata, job->status)["status"]}});
    EXPECT_EQ(object["status"]["phase"], json::parse(test.status)["phase"]);
  }
}

// A patch replaces list items as a whole, so it must contain the members that a newer version added.
TEST(Codec, StatusPatchPreservesUnknownMembersOfListItems) {
  json object = minimal();
  object["status"] = json::parse(R"({
    "phase": "Running", "goodput": {"useful": 7}, "nodes": {"ready": 1, "spare": 2},
    "conditions": [{"type": "Running", "status": "True", "reason": "R", "observedGeneration": 4},
                   {"type": "Healthy", "status": "Unknown", "reason": "Probing", "hint": {"a": [1]}}],
    "restarts": {"total": 1, "reasons": [{"reason": "X", "count": 1, "lost": 9}]},
    "attempts": [{"attempt": 0, "endTime": "2026-01-01T00:00:00Z", "reason": "X", "step": 12}]})");
  const api::TrainingJob job = api::training_job_from_json(object).value();
  json after = object;
  after.merge_patch({{"status", api::status_patch(job.metadata, job.status)["status"]}});
  EXPECT_EQ(after["status"]["goodput"], object["status"]["goodput"]);
  EXPECT_EQ(after["status"]["nodes"]["spare"], 2);
  EXPECT_EQ(after["status"]["conditions"][0]["observedGeneration"], 4);
  EXPECT_EQ(after["status"]["conditions"][1]["status"], "Unknown");
  EXPECT_EQ(after["status"]["conditions"][1]["hint"], json::parse(R"({"a": [1]})"));
  EXPECT_EQ(after["status"]["restarts"]["reasons"][0]["lost"], 9);
  EXPECT_EQ(after["status"]["attempts"][0]["step"], 12);
  json conditions_only = object;
  conditions_only.merge_patch({{"status", api::conditions_patch(job.metadata, job.status.conditions)["status"]}});
  EXPECT_EQ(conditions_only["status"]["conditions"], after["status"]["conditions"]);
  conditions_only["status"]["conditions"] = object["status"]["conditions"];
  EXPECT_EQ(conditions_only, object);
}

TEST(Codec, ReadsOtherFieldsDespiteWrongTypes) {
  json object = minimal();
  object["spec"]["nodes"] = {{"min", 1}};
  object["spec"]["processesPerNode"] = {1};
  object["status"] = json::parse(R"({"attempt": 2, "conditions": [{"type": "Running", "status": "True"}]})");
  api::TrainingJob job = api::read_training_job(object);
  EXPECT_EQ(job.metadata.uid, "u");
  EXPECT_EQ(job.report.problem, R"(spec.nodes: expected an integer, got {"min":1} (and 1 more))");
  EXPECT_TRUE(job.report.has_conditions);
  ASSERT_EQ(job.status.conditions.size(), 1U);
  object["status"]["conditions"].push_back(3);
  EXPECT_FALSE(api::read_training_job(object).report.has_conditions);
  for (const json& odd :
       {json(), json(3), json::array({1}), json{{"metadata", {{"name", 3}}}}, json{{"status", "x"}}}) {
    job = api::read_training_job(odd);
    EXPECT_EQ(job.report.problem.empty(), odd.is_null()) << odd.dump();
  }
  EXPECT_FALSE(api::read_training_job(json{{"status", "x"}}).report.has_conditions);
}

TEST(Codec, AcceptsIntegralFloatsInRange) {
  for (const json& good : {json(4), json(4.0), json(4e0), json(4U)}) {
    json object = minimal();
    object["spec"]["nodes"] = good;
    EXPECT_EQ(api::training_job_from_json(object)->spec.nodes, 4);
  }
  for (const json& bad : {json(1.5), json(18446744073709551615U), json(1e300), json(-1e300), json(4294967297)}) {
    json object = minimal();
    object["spec"]["nodes"] = bad;
    EXPECT_FALSE(api::training_job_from_json(object)) << bad.dump();
    object = minimal();
    object["metadata"]["generation"] = bad;
    EXPECT_EQ(api::training_job_from_json(object).has_value(), bad == json(4294967297)) << bad.dump();
  }
}

// The operator allocates tables of these sizes and increments these numbers.
TEST(Codec, ReplacesAndReportsNumbersOutOfRange) {
  for (const json& nodes : {json(2147483647), json(-2147483648), json(4097), json(0)}) {
    json object = minimal();
    object["spec"]["nodes"] = nodes;
    object["spec"]["processesPerNode"] = 2147483647;
    object["status"]["attempt"] = 1000000000;
    const api::TrainingJob job = api::read_training_job(object);
    EXPECT_EQ(job.report.problem,
              fmt::format("spec.nodes: {} is not in the range 1 to 4096 (and 2 more)", nodes.get<int64_t>()));
    EXPECT_EQ(job.spec.nodes, 1);
    EXPECT_EQ(job.spec.processes_per_node, 1);
    EXPECT_EQ(job.status.attempt, 0);
  }
}

TEST(Codec, RoundTripsEveryField) {
  api::TrainingJob job =
      JobBuilder().nodes(2).processes_per_node(2).trainer(R"({"task":"x"})").max_restarts(5).suspend().build();
  job.metadata.deletion_timestamp = at_second(9);
  job.spec.rendezvous.port = 12345;
  job.spec.failure_policy.backoff_seconds = 7;
  job.spec.failure_policy.rules = {
      {api::FailureAction::kIgnore, api::ExitCodeMatch{api::ExitCodeOperator::kNotIn, {3, 42}}, {}, {}},
      {api::FailureAction::kFail, std::nullopt, {"OOMKilled", "Evicted"}, {}},
      {api::FailureAction::kRestartFree, std::nullopt, {}, {api::PodConditionMatch()}}};
  job.spec.stall_policy.timeout_seconds = 90;
  job.spec.success_policy = api::SuccessPolicy::kRank0;
  job.spec.clean_pod_policy = api::CleanPodPolicy::kAll;
  job.spec.active_deadline_seconds = 3000000000;
  job.spec.ttl_seconds_after_finished = 0;
  job.spec.managed_by = "kueue.x-k8s.io/multikueue";
  job.status = full_status();
  const auto back = api::training_job_from_json(json::parse(api::to_json(job).dump()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, job);
}

TEST(Codec, ReportsPathOfWrongType) {
  struct Case {
    const char* pointer;
    json value;
    const char* message;
  };
  const Case cases[] = {
      {.pointer = "/spec/nodes", .value = "2", .message = R"(spec.nodes: expected an integer, got "2")"},
      {.pointer = "/spec/nodes", .value = 2.5, .message = "spec.nodes: expected an integer, got 2.5"},
      {.pointer = "/spec/nodes",
       .value = 3000000000LL,
       .message = "spec.nodes: expected an integer of 32 bits, got 3000000000"},
      {.pointer = "/spec/suspend", .value = "yes", .message = R"(spec.suspend: expected true or false, got "yes")"},
      {.pointer = "/spec/failurePolicy", .value = 3, .message = "spec.failurePolicy: expected an object, got 3"},
      {.pointer = "/spec/template", .value = "x", .message = R"(spec.template: expected an object, got "x")"},
      {.pointer = "/status", .value = json{{"phase", 7}}, .message = "status.phase: expected a string, got 7"},
      {.pointer = "/status",
       .value = json{{"startTime", "noon"}},
       .message = R"(status.startTime: expected a time as 2026-11-21T10:11:12Z, got "noon")"},
      {.pointer = "/status",
       .value = json{{"conditions", json::array({{{"type", 1}}})}},
       .message = "status.conditions[0].type: expected a string, got 1"},
      {.pointer = "/spec/cleanPodPolicy", .value = true, .message = "spec.cleanPodPolicy: expected a string, got true"},
      {.pointer = "/spec/failurePolicy",
       .value = json{{"rules", json::array({{{"onExitCodes", {{"values", {1, "2"}}}}}})}},
       .message = R"(spec.failurePolicy.rules[0].onExitCodes.values[1]: expected an integer, got "2")"},
      {.pointer = "/metadata", .value = json::array(), .message = "metadata: expected an object, got []"},
  };
  for (const Case& test : cases) {
    json object = minimal();
    object[json::json_pointer(test.pointer)] = test.value;
    const auto job = api::training_job_from_json(object);
    ASSERT_FALSE(job) << test.pointer;
    EXPECT_EQ(job.error().message, test.message);
    EXPECT_EQ(job.error().code, ExitCode::kConfig);
  }
  EXPECT_FALSE(api::training_job_from_json(json::array()));
}

TEST(Codec, TreatsNullAsAbsent) {
  json object = minimal();
  object["spec"]["nodes"] = nullptr;
  object["spec"]["trainer"] = nullptr;
  object["status"] = nullptr;
  EXPECT_EQ(api::training_job_from_json(object).value(), api::training_job_from_json(minimal()).value());
}

TEST(Codec, StatusPatchReplacesTheWholeStatus) {
  const api::TrainingJob job = JobBuilder().build();
  api::Status next;
  next.phase = api::Phase::kPending;
  next.progress = api::Progress{};
  const json patch = api::status_patch(job.metadata, next);
  EXPECT_EQ(patch["metadata"]["uid"], kJobUid);
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "100");

  json object = api::to_json(JobBuilder().status(full_status()).build());
  object.merge_patch({{"status", patch["status"]}});
  EXPECT_EQ(api::training_job_from_json(object)->status, next);

  next.progress.reset();
  object = api::to_json(JobBuilder().status(full_status()).build());
  object.merge_patch({{"status", api::status_patch(job.metadata, next)["status"]}});
  EXPECT_EQ(api::training_job_from_json(object)->status, next);
}

// The list of conditions is replaced as a whole by a merge patch.
TEST(Codec, PreservesConditionsOfOtherControllers) {
  json object = minimal();
  const json conditions = json::parse(R"([
    {"type": "QuotaReserved", "status": "Unknown", "reason": "Q", "message": "m", "lastTransitionTime": "soon", "x": [1]},
    {"type": "Running", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-11-21T10:00:00Z"},
    {"type": "Reviewed", "status": "True"}])");
  object["status"] = {{"phase", "Running"}, {"conditions", conditions}};
  const auto job = api::training_job_from_json(object);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(api::status_patch({}, job->status)["status"]["conditions"], conditions);
  EXPECT_FALSE(job->status.conditions.at(2).status) << "not a condition of the operator";
}

TEST(Codec, StatusPatchPreservesUnknownMembers) {
  json object = api::to_json(JobBuilder().build());
  object["status"] = {{"goodput", {{"usefulSeconds", 7}}}};
  object.merge_patch({{"status", api::status_patch({}, full_status())["status"]}});
  EXPECT_EQ(object["status"]["goodput"]["usefulSeconds"], 7);
}

}  // namespace
}  // namespace oarlock::test
