#include "cli/cluster/diagnosis.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "cli/cluster/cause_text.h"

namespace oarlock::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kUid[] = "8f6e4a2c-0000-4000-8000-000000000001";

SystemTime time_of(const std::string& text) {
  SystemTime time;
  EXPECT_TRUE(from_rfc3339(text, time)) << text;
  return time;
}

// A job of two nodes with one process each.
Json job_object(const Json& status, const Json& spec = Json::object()) {
  Json out = {{"apiVersion", kApiVersion},
              {"kind", kKind},
              {"metadata",
               {{"name", "bert"}, {"namespace", "team"}, {"uid", kUid}, {"creationTimestamp", "2026-11-23T06:00:00Z"}}},
              {"spec", {{"nodes", 2}, {"image", "i"}}},
              {"status", status}};
  out["spec"].update(spec);
  return out;
}

Json condition(const std::string& type, const std::string& reason, const std::string& message) {
  return {{"type", type},
          {"status", "True"},
          {"reason", reason},
          {"message", message},
          {"lastTransitionTime", "2026-11-23T06:30:00Z"}};
}

Json status_in(const std::string& phase, const std::string& reason, const std::string& message) {
  return {{"phase", phase},
          {"attempt", 0},
          {"startTime", "2026-11-23T06:00:10Z"},
          {"attemptStartTime", "2026-11-23T06:00:10Z"},
          {"conditions", Json::array({condition(phase, reason, message)})}};
}

// The record of attempt 0, whose root cause was node rank 1.
Json record(const std::string& reason, const std::string& message, const Json& exit_code = nullptr) {
  Json out = {{"attempt", 0},
              {"startTime", "2026-11-23T06:00:10Z"},
              {"endTime", "2026-11-23T06:20:10Z"},
              {"reason", reason},
              {"message", message},
              {"pod", "bert-0-1"},
              {"node", "gpu-7"},
              {"nodeRank", 1}};
  if (!exit_code.is_null()) out["exitCode"] = exit_code;
  return out;
}

Json failed_with(const Json& attempt, const std::string& reason = "PermanentFailure") {
  Json status = status_in("Failed", reason, attempt["message"].get<std::string>() + "; a restart would fail again");
  status["attempts"] = Json::array({attempt});
  status["completionTime"] = "2026-11-23T06:20:11Z";
  return status;
}

// A job that has failed with this record.
Json failed_job(const std::string& reason, const std::string& message, const Json& exit_code = nullptr,
                const std::string& condition_reason = "PermanentFailure") {
  return job_object(failed_with(record(reason, message, exit_code), condition_reason));
}

// The pod of node rank 1 of attempt 0.
Json pod_object(const Json& status) {
  return {{"metadata",
           {{"name", "bert-0-1"},
            {"uid", "pod-uid"},
            {"labels", {{kLabelJobName, "bert"}, {kLabelAttempt, "0"}, {kLabelNodeRank, "1"}}}}},
          {"spec", {{"nodeName", "gpu-7"}}},
          {"status", status}};
}

Json trainer_ended(int exit_code, const std::string& reason, const std::string& message) {
  return {{"phase", "Failed"},
          {"containerStatuses", Json::array({{{"name", "trainer"},
                                              {"state",
                                               {{"terminated",
                                                 {{"exitCode", exit_code},
                                                  {"reason", reason},
                                                  {"message", message},
                                                  {"finishedAt", "2026-11-23T06:20:09Z"}}}}}}})}};
}

Json trainer_waits(const std::string& reason, const std::string& message) {
  return {{"phase", "Pending"},
          {"conditions", Json::array({{{"type", "PodScheduled"}, {"status", "True"}}})},
          {"containerStatuses",
           Json::array({{{"name", "trainer"}, {"state", {{"waiting", {{"reason", reason}, {"message", message}}}}}}})}};
}

Json event_about(const std::string& kind, const std::string& name, const std::string& reason,
                 const std::string& message) {
  return {{"involvedObject", {{"kind", kind}, {"name", name}}},
          {"type", "Warning"},
          {"reason", reason},
          {"message", message},
          {"count", 3},
          {"lastTimestamp", "2026-11-23T06:20:00Z"}};
}

Json node_object(const std::string& ready) {
  return {
      {"metadata", {{"name", "gpu-7"}}},
      {"status",
       {{"conditions",
         Json::array({{{"type", "Ready"}, {"status", ready}, {"message", "Kubelet stopped posting node status."}}})}}}};
}

std::string rank_message(int64_t step, int64_t checkpoint_step, const std::string& reason, const std::string& text) {
  return to_json(TerminationMessage{
      .rank = 1, .step = step, .checkpoint_step = checkpoint_step, .reason = reason, .message = text});
}

struct Objects {
  Json job;
  std::vector<Json> pods{};
  std::vector<Json> events{};
  std::vector<Json> nodes{};
};

Diagnosis diagnose_objects(const Objects& objects) {
  DiagnosisInput input;
  input.job = api::read_training_job(objects.job);
  EXPECT_EQ(input.job.report.problem, "");
  input.finalizers = holding_finalizers(objects.job);
  input.now = time_of("2026-11-23T07:00:00Z");
  for (const Json& pod : objects.pods) {
    const auto view = pod_view(pod);
    EXPECT_TRUE(view) << pod;
    if (view) input.pods.push_back(*view);
  }
  for (const Json& event : objects.events) input.events.push_back(event_view(event));
  for (const Json& node : objects.nodes) input.nodes.push_back(node_view(node));
  return diagnose(input);
}

// ---- The failures that a job can have ------------------------------------------------------------------------------

struct FailureCase {
  std::string name;
  Objects objects;
  DiagnosedCause cause;
  std::string headline;   // a part of it
  std::string remedy;     // a part of one of them
  bool has_place = true;  // the pod and its node are known
  std::optional<int> exit_code{};
};

std::vector<FailureCase> failure_cases() {
  return {
      {.name = "OutOfMemory",
       .objects = {.job = failed_job("OOMKilled", "pod bert-0-1 on gpu-7 ended with exit code 137 (OOMKilled)", 137,
                                     "MaxRestartsExceeded"),
                   .pods = {pod_object(trainer_ended(137, "OOMKilled", ""))}},
       .cause = DiagnosedCause::kOutOfMemory,
       .headline = "bert failed: rank 1 ran out of memory",
       .remedy = "limits.memory",
       .exit_code = 137},
      {.name = "Eviction",
       .objects = {.job = failed_job("Evicted",
                                     "pod bert-0-1 on gpu-7 failed (Evicted): The node was low on resource: memory.",
                                     nullptr, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kEvicted,
       .headline = "rank 1 was evicted",
       .remedy = "requests equal to limits"},
      {.name = "Preemption",
       .objects = {.job = job_object([] {
                     Json status = status_in("Restarting", "PreemptionByScheduler", "pod bert-0-1 was deleted");
                     status["attempt"] = 1;
                     status["attempts"] = Json::array({record(
                         "PreemptionByScheduler", "pod bert-0-1 on gpu-7 was deleted (PreemptionByScheduler)")});
                     return status;
                   }())},
       .cause = DiagnosedCause::kPreempted,
       .headline = "bert is restarting: rank 1 was preempted",
       .remedy = "priorityClassName"},
      {.name = "ImagePull",
       .objects =
           {.job = job_object(status_in("Pending", "ImagePullBackOff", "1 of 2 pods have started")),
            .pods = {pod_object(trainer_waits("ImagePullBackOff", "Back-off pulling image \"registry/x:1\""))},
            .events = {event_about(
                "Pod", "bert-0-1", "Failed",
                "Failed to pull image \"registry/x:1\": manifest for registry/x:1 not found: manifest unknown")}},
       .cause = DiagnosedCause::kImagePull,
       .headline = "bert cannot start: the image of rank 1 cannot be pulled",
       .remedy = "imagePullSecrets"},
      {.name = "FullDisk",
       .objects = {.job = failed_job(
                       "IoError",
                       "pod bert-0-1 on gpu-7 ended with exit code 74: IoError: /ckpt/bert: No space left on device",
                       74),
                   .pods = {pod_object(trainer_ended(
                       74, "Error", rank_message(910, 900, "IoError", "/ckpt/bert: No space left on device")))}},
       .cause = DiagnosedCause::kDiskFull,
       .headline = "the disk of rank 1 is full",
       .remedy = "spec.checkpoints.size",
       .exit_code = 74},
      {.name = "EphemeralStorage",
       .objects = {.job =
                       failed_job("Evicted",
                                  "pod bert-0-1 on gpu-7 failed (Evicted): Pod ephemeral local storage usage exceeds "
                                  "the total limit of containers 10Gi.",
                                  nullptr, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kDiskFull,
       .headline = "the disk of rank 1 is full",
       .remedy = "ephemeral-storage"},
      {.name = "DeviceFailed",
       .objects = {.job = failed_job(
                       "DeviceFailed",
                       "pod bert-0-1 on gpu-7 ended with exit code 79: DeviceFailed: the device or its driver "
                       "failed: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus",
                       79, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kDeviceFailed,
       .headline = "a GPU of rank 1",
       .remedy = "kubectl cordon gpu-7",
       .exit_code = 79},
      {.name = "BadConfig",
       .objects = {.job = failed_job(
                       "ConfigInvalid",
                       "pod bert-0-1 on gpu-7 ended with exit code 78: ConfigInvalid: /etc/oarlock/trainer.json:1:9: "
                       "optimizer.lr: expected a number",
                       78),
                   .pods = {pod_object(trainer_ended(
                       78, "Error", rank_message(0, -1, "ConfigInvalid", "optimizer.lr: expected a number")))}},
       .cause = DiagnosedCause::kConfigInvalid,
       .headline = "invalid configuration",
       .remedy = "oarlock validate",
       .exit_code = 78},
      {.name = "BadConfigOfRendezvous",
       .objects = {.job = failed_job("ConfigInvalid",
                                     "pod bert-0-1 on gpu-7 ended with exit code 78: ConfigInvalid: MASTER_ADDR: "
                                     "rendezvous: disk full",
                                     78)},
       .cause = DiagnosedCause::kConfigInvalid,
       .headline = "invalid configuration",
       .remedy = "oarlock validate",
       .exit_code = 78},
      {.name = "UnreachableMaster",
       .objects = {.job =
                       failed_job("TemporaryFailure",
                                  "pod bert-0-1 on gpu-7 ended with exit code 75: TemporaryFailure: rendezvous: 1 of 2 "
                                  "ranks arrived within 300 s; missing: rank 0",
                                  75, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kMasterUnreachable,
       .headline = "could not reach the rendezvous",
       .remedy = "NetworkPolicy",
       .exit_code = 75},
      {.name = "UnreachableMasterOfPython",
       .objects = {.job = failed_job(
                       "PodFailed",
                       "pod bert-0-1 on gpu-7 ended with exit code 1: torch.distributed.DistNetworkError: The client "
                       "socket has timed out after 300000ms while trying to connect to (bert-0-0.bert, 29500).",
                       1, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kMasterUnreachable,
       .headline = "could not reach the rendezvous",
       .remedy = "pod of rank 0",
       .exit_code = 1},
      {.name = "HangInCollective",
       .objects = {.job = failed_job(
                       "PeerLost",
                       "a rank was lost and no pod reports which one: pod bert-0-1 on gpu-7 ended with exit code 76: "
                       "PeerLost: a collective timed out: another rank hangs or is too slow (rank 0 has not arrived)",
                       nullptr, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kHang,
       .headline = "made no progress",
       .remedy = "the one that is behind"},
      {.name = "Stalled",
       .objects = {.job =
                       job_object(status_in("Stalled", "NoStep", "no step since 06:20:00; rank 0 is in phase train"))},
       .cause = DiagnosedCause::kHang,
       .headline = "bert is stalled",
       .remedy = "oarlock top bert -n team",
       .has_place = false},
      {.name = "NonFinite",
       .objects = {.job = failed_job(
                       "DataInvalid",
                       "pod bert-0-1 on gpu-7 ended with exit code 65: DataInvalid: the loss of step 41 is not finite",
                       65)},
       .cause = DiagnosedCause::kNonFinite,
       .headline = "not finite",
       .remedy = "learning rate",
       .exit_code = 65},
      {.name = "Quota",
       .objects = {.job = job_object(
                       status_in("Pending", "CreateRefused",
                                 "0 of 2 pods have started; the API server refused: pods \"bert-0-0\" is forbidden: "
                                 "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8"))},
       .cause = DiagnosedCause::kQuota,
       .headline = "bert cannot start: the quota",
       .remedy = "kubectl describe resourcequota -n team",
       .has_place = false},
      {.name = "Deadline",
       .objects = {.job = job_object([] {
                     Json status = status_in("Failed", "DeadlineExceeded",
                                             "the job was active for longer than activeDeadlineSeconds (600 s)");
                     status["completionTime"] = "2026-11-23T06:30:00Z";
                     status["progress"] = {{"step", 70}, {"targetSteps", 100}};
                     return status;
                   }())},
       .cause = DiagnosedCause::kDeadline,
       .headline = "longer than activeDeadlineSeconds",
       .remedy = "spec.activeDeadlineSeconds",
       .has_place = false},
      {.name = "NodeLossByTaint",
       .objects = {.job = failed_job("DeletionByTaintManager",
                                     "pod bert-0-1 on gpu-7 was deleted (DeletionByTaintManager)", nullptr,
                                     "MaxRestartsExceeded"),
                   .nodes = {node_object("Unknown")}},
       .cause = DiagnosedCause::kNodeLost,
       .headline = "the node of rank 1 was lost",
       .remedy = "kubectl describe node gpu-7"},
      {.name = "NodeLossByDeletedPod",
       .objects = {.job = failed_job("PodLost", "pod bert-0-1 no longer exists", nullptr, "MaxRestartsExceeded"),
                   .nodes = {node_object("False")}},
       .cause = DiagnosedCause::kNodeLost,
       .headline = "the node of rank 1 was lost",
       .remedy = "kubectl describe node gpu-7"},
      {.name = "DeletedPod",
       .objects = {.job = failed_job("PodDeleted", "pod bert-0-1 on gpu-7 was deleted", nullptr, "MaxRestartsExceeded"),
                   .nodes = {node_object("True")}},
       .cause = DiagnosedCause::kPodDeleted,
       .headline = "the pod of rank 1 was deleted",
       .remedy = "oarlock suspend"},
      {.name = "Sigterm",
       .objects = {.job = failed_job("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 143 (signal 15)", 143,
                                     "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kTerminated,
       .headline = "rank 1 was stopped by a signal from outside",
       .remedy = "an autoscaler",
       .exit_code = 143},
      {.name = "UnknownExit",
       .objects = {.job = failed_job("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 3: ValueError: bad split",
                                     3, "MaxRestartsExceeded")},
       .cause = DiagnosedCause::kExit,
       .headline = "an exit code that Oarlock does not define",
       .remedy = "its log has the reason",
       .exit_code = 3},
      {.name = "Unschedulable",
       .objects = {.job = job_object(status_in("Pending", "Unschedulable", "0 of 2 pods have started")),
                   .pods = {pod_object(
                       {{"phase", "Pending"},
                        {"conditions",
                         Json::array({{{"type", "PodScheduled"},
                                       {"status", "False"},
                                       {"message", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}}})}})}},
       .cause = DiagnosedCause::kUnschedulable,
       .headline = "no node can run rank 1",
       .remedy = "kubectl describe nodes"},
      {.name = "Volume",
       .objects = {.job = job_object(status_in("Pending", "PodsStarting", "0 of 2 pods have started")),
                   .pods = {pod_object(trainer_waits("ContainerCreating", ""))},
                   .events = {event_about("Pod", "bert-0-1", "FailedMount",
                                          "MountVolume.SetUp failed for volume \"data\": secret \"s\" not found")}},
       .cause = DiagnosedCause::kVolume,
       .headline = "a volume of rank 1 cannot be mounted",
       .remedy = "PersistentVolumeClaim"},
  };
}

class WhyOf : public ::testing::TestWithParam<FailureCase> {};

TEST_P(WhyOf, NamesFirstCause) {
  const FailureCase& one = GetParam();
  const Diagnosis found = diagnose_objects(one.objects);
  EXPECT_EQ(to_string(found.cause), to_string(one.cause));
  EXPECT_THAT(found.headline, HasSubstr(one.headline));
  EXPECT_THAT(found.remedies, Contains(HasSubstr(one.remedy)));
  EXPECT_EQ(found.exit_code, one.exit_code);
  EXPECT_EQ(found.pod, one.has_place ? "bert-0-1" : "");
  EXPECT_EQ(found.node, one.has_place ? "gpu-7" : "");
  EXPECT_THAT(found.message, Not(IsEmpty()));
  const std::string text = diagnosis_text(found, {}, time_of("2026-11-23T07:00:00Z"));
  EXPECT_THAT(text, AllOf(HasSubstr(one.headline), HasSubstr(one.remedy)));
  EXPECT_EQ(diagnosis_document("bert", found)["cause"], to_string(one.cause));
}

INSTANTIATE_TEST_SUITE_P(Diagnosis, WhyOf, ::testing::ValuesIn(failure_cases()),
                         [](const auto& one) { return one.param.name; });

// ---- Details -------------------------------------------------------------------------------------------------------

TEST(Diagnosis, CountsStepsLostSinceCheckpoint) {
  const Diagnosis found =
      diagnose_objects({.job = failed_job("IoError", "ended with exit code 74", 74),
                        .pods = {pod_object(trainer_ended(
                            74, "Error", rank_message(910, 900, "IoError", "/ckpt: No space left on device")))}});
  EXPECT_THAT(found.cost, Contains("10 steps: it was at step 910, and the newest checkpoint has step 900"));
  EXPECT_THAT(found.cost, Contains("the attempt ran for 20m with 2 ranks"));
  EXPECT_EQ(found.message, "/ckpt: No space left on device");
  EXPECT_EQ(found.rank, 1);
}

// A rank that SIGKILL ended leaves no message; the last progress that the operator received is that of its attempt
// until the next one reports.
TEST(Diagnosis, CountsStepsLostWithoutAMessageOfTheRank) {
  Json status = status_in("Restarting", "PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 137");
  status["attempt"] = 1;
  status["attempts"] = Json::array({record("PodFailed", "ended with exit code 137", 137)});
  status["progress"] = {{"step", 910}, {"checkpointStep", 900}, {"updatedAt", "2026-11-23T06:20:09Z"}};
  const std::string lost = "10 steps: it was at step 910, and the newest checkpoint has step 900";
  EXPECT_THAT(diagnose_objects({.job = job_object(status)}).cost, Contains(lost));
  status["progress"]["updatedAt"] = "2026-11-23T06:20:40Z";
  EXPECT_THAT(diagnose_objects({.job = job_object(status)}).cost, Not(Contains(lost))) << "of the next attempt";
}

TEST(Diagnosis, ReportsFailureThatOperatorHasNotRecorded) {
  Json status = status_in("Running", "PodsRunning", "all pods have started");
  const Diagnosis found =
      diagnose_objects({.job = job_object(status), .pods = {pod_object(trainer_ended(137, "OOMKilled", ""))}});
  EXPECT_EQ(found.cause, DiagnosedCause::kOutOfMemory);
  EXPECT_THAT(found.headline, HasSubstr("bert has failed pods"));
}

TEST(Diagnosis, ExplainsLastFailureOfJobThatRunsAgain) {
  Json status = status_in("Running", "PodsRunning", "all pods have started");
  status["attempt"] = 1;
  status["attemptStartTime"] = "2026-11-23T06:20:15Z";
  status["restarts"] = {
      {"total", 1}, {"charged", 1}, {"reasons", Json::array({{{"reason", "OOMKilled"}, {"count", 1}}})}};
  status["attempts"] =
      Json::array({record("OOMKilled", "pod bert-0-1 on gpu-7 ended with exit code 137 (OOMKilled)", 137)});
  const Diagnosis found = diagnose_objects({.job = job_object(status)});
  EXPECT_TRUE(found.is_resolved);
  EXPECT_THAT(found.headline, HasSubstr("bert runs again; its last failure: rank 1 ran out of memory"));
  EXPECT_THAT(found.cost, Contains("5s until the pods of the next attempt were created"));
  EXPECT_THAT(found.cost, Contains(HasSubstr("1 of 3 that failurePolicy.maxRestarts allows are used")));
}

TEST(Diagnosis, NamesTheRankOfARecordWhosePodIsGone) {
  Json attempt = record("IoError", "ended with exit code 74", 74);
  attempt["rank"] = 5;
  EXPECT_EQ(diagnose_objects({.job = job_object(failed_with(attempt))}).rank, 5);
}

TEST(Diagnosis, CostIncludesRestartsThatKeptThePods) {
  Json status = failed_with(record("IoError", "ended with exit code 74", 74));
  status["inPodRestarts"] = {{"total", 2}, {"seconds", 3.25}};
  status["recoveries"] = {{"total", 1}, {"seconds", 0.5}};
  const Diagnosis found = diagnose_objects({.job = job_object(status)});
  EXPECT_THAT(found.cost, Contains("2 restarts of all processes in their pods before, which took 3.25 s"));
  EXPECT_THAT(found.cost, Contains("1 recovery without a restart before, which took 0.5 s and lost no step"));
}

TEST(Diagnosis, FindsNoFailureInHealthyJobs) {
  for (const char* phase : {"Running", "Complete"}) {
    const Diagnosis found = diagnose_objects({.job = job_object(status_in(phase, "Set", "by the test"))});
    EXPECT_EQ(found.cause, DiagnosedCause::kNone) << phase;
    EXPECT_THAT(found.remedies, IsEmpty()) << phase;
  }
  EXPECT_EQ(diagnose_objects({.job = job_object(status_in("Suspended", "Suspended", "m"))}).cause,
            DiagnosedCause::kSuspended);
  EXPECT_EQ(diagnose_objects({.job = job_object(Json::object())}).cause, DiagnosedCause::kNotManaged);
}

TEST(Diagnosis, NamesFinalizersThatHoldADeletion) {
  Json job = job_object(status_in("Running", "PodsRunning", "all pods have started"));
  Json pod = pod_object(trainer_ended(0, "Completed", ""));
  for (Json* object : {&job, &pod}) {
    (*object)["metadata"]["finalizers"] = {"example.com/billing", "b"};
    EXPECT_EQ(holding_finalizers(*object), "") << "it is not being deleted";
    (*object)["metadata"]["deletionTimestamp"] = "2026-11-23T06:40:00Z";
    EXPECT_EQ(holding_finalizers(*object), "example.com/billing, b");
  }
  const Diagnosis found = diagnose_objects({.job = job, .pods = {pod}});
  EXPECT_THAT(found.headline, HasSubstr("; the job is being deleted"));
  for (const char* object : {"job bert", "pod bert-0-1"}) {
    EXPECT_THAT(found.evidence, Contains(AllOf(HasSubstr(std::string(object) + " is being deleted"),
                                               HasSubstr("example.com/billing, b"))));
  }
  job["metadata"].erase("finalizers");
  EXPECT_THAT(diagnose_objects({.job = job}).evidence, IsEmpty());
}

// Attempts that ended because not all pods started, and pods that a node did not admit, have no exit code.
TEST(Diagnosis, NamesWhatKeptPodsFromStarting) {
  struct Row {
    const char* reason;
    const char* message;
    DiagnosedCause cause;
    const char* event = "";
  };
  const std::string so_far = "1 of 2 pods have started";
  const Row rows[] = {
      {.reason = "Unschedulable", .message = "; pod bert-0-1: 0/3 nodes", .cause = DiagnosedCause::kUnschedulable},
      {.reason = "ImagePullBackOff", .message = "; pod bert-0-1: not found", .cause = DiagnosedCause::kImagePull},
      {.reason = "CreateRefused",
       .message = "; the API server refused: exceeded quota: pods",
       .cause = DiagnosedCause::kQuota},
      {.reason = "PodsStarting", .message = "", .cause = DiagnosedCause::kVolume, .event = "FailedAttachVolume"},
      {.reason = "PodsStarting", .message = "", .cause = DiagnosedCause::kImagePull, .event = "Pulling"}};
  for (const Row& row : rows) {
    const std::string message =
        so_far + row.message + "; pod bert-0-0 on gpu-1 ended with exit code 75: RendezvousTimeout: 1 of 2 ranks";
    Json status = status_in("Restarting", row.reason, "attempt 0: " + message + "; 0 of 2 pods have started");
    status["attempt"] = 1;
    status["attempts"] = Json::array({record(row.reason, message)});
    const Diagnosis found =
        diagnose_objects({.job = job_object(status), .events = {event_about("Pod", "bert-0-1", row.event, "m")}});
    EXPECT_EQ(found.cause, row.cause) << row.reason << ": " << found.headline;
    EXPECT_EQ(found.exit_code, std::nullopt);
    EXPECT_THAT(found.evidence, testing::Not(Contains(HasSubstr("waits: ContainerStart"))));
  }
  const Diagnosis rejected =
      diagnose_objects({.job = failed_job("OutOfcpu", "pod bert-0-1 on gpu-7 was rejected by its node (OutOfcpu): m",
                                          nullptr, "MaxRestartsExceeded")});
  EXPECT_EQ(rejected.cause, DiagnosedCause::kRejected);
  EXPECT_THAT(rejected.headline, testing::Not(HasSubstr("exit code")));
  Json init = record("PodFailed", "init container fetch of pod bert-0-1 on gpu-7 ended with exit code 3", 3);
  init["container"] = "fetch";
  const Diagnosis failed = diagnose_objects({.job = job_object(failed_with(init, "FailurePolicy"))});
  EXPECT_EQ(failed.cause, DiagnosedCause::kInitContainer);
  EXPECT_THAT(failed.explanation, HasSubstr("init container fetch: 3"));
}

TEST(Diagnosis, RestartingJobNamesWhatItWaitsFor) {
  const std::string failure = "pod bert-0-1 on gpu-7 ended with exit code 1";
  const auto evidence_of = [&](const std::string& state) {
    Json status = status_in("Restarting", "PodFailed", "attempt 0: " + failure + "; " + state);
    status["attempt"] = 1;
    status["attempts"] = Json::array({record("PodFailed", failure, 1)});
    return diagnose_objects({.job = job_object(status)}).evidence;
  };
  EXPECT_THAT(evidence_of("0 of 2 pods have started; the API server refused: exceeded quota"),
              Contains(HasSubstr("attempt 1 waits: Quota")));
  EXPECT_THAT(evidence_of("0 of 2 pods have started; the API server refused: failed calling webhook"),
              Contains(HasSubstr("attempt 1 waits: PodRefused")));
  EXPECT_THAT(evidence_of("waiting for 1 pod of earlier attempts to save"),
              Contains(HasSubstr("state of the restart: attempt 0: " + failure + "; waiting for 1 pod")));
}

TEST(Diagnosis, ListsEarlierFailuresAndEvidence) {
  Json first = record("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 3", 3);
  Json second = record("OOMKilled", "pod bert-1-1 on gpu-7 ended with exit code 137 (OOMKilled)", 137);
  second["attempt"] = 1;
  second["pod"] = "bert-1-1";
  Json status = status_in("Failed", "MaxRestartsExceeded", "1 of 1 restarts are used up");
  status["attempt"] = 1;
  status["attempts"] = Json::array({first, second});
  const Diagnosis found =
      diagnose_objects({.job = job_object(status),
                        .events = {event_about("Node", "gpu-7", "SystemOOM", "System OOM encountered")},
                        .nodes = {node_object("False")}});
  EXPECT_EQ(found.attempt, 1);
  EXPECT_THAT(found.history, ::testing::ElementsAre(HasSubstr("attempt 0: PodFailed")));
  EXPECT_THAT(found.evidence, Contains(HasSubstr("event SystemOOM of Node gpu-7 (3 times)")));
  EXPECT_THAT(found.evidence, Contains(HasSubstr("node gpu-7 is not ready: Kubelet stopped posting")));
}

TEST(Diagnosis, NamesTheStepOfFailuresWithoutProgress) {
  Json status = failed_with(record("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 1", 1), "NoProgress");
  status["restarts"] = {{"total", 4},
                        {"charged", 2},
                        {"afterProgress", {{"count", 2}, {"step", 1200}, {"checkpointStep", 1000}, {"failures", 3}}}};
  const Diagnosis found = diagnose_objects({.job = job_object(status)});
  EXPECT_THAT(found.cost, Contains(HasSubstr("it failed 3 times without progress beyond step 1200")));
  EXPECT_THAT(found.cost, Contains("2 restarts and replaced pods after progress: against the limit "
                                   "failurePolicy.maxTotalRestarts (30) only"));
}

TEST(Diagnosis, NamesTheNodesThatTheJobAvoids) {
  Json status =
      status_in("Pending", "Unschedulable", "0 of 2 pods have started; pod bert-1-1: 0/2 nodes are available");
  status["badNodes"] = {{{"name", "gpu-7"},
                         {"failures", 2},
                         {"lastTime", "2026-11-23T06:30:00Z"},
                         {"reason", "DeviceFailed"},
                         {"avoidance", "Required"}}};
  EXPECT_THAT(diagnose_objects({.job = job_object(status)}).evidence,
              Contains(HasSubstr("bad node gpu-7: pods require other nodes")));
  status["phase"] = "Complete";
  EXPECT_THAT(diagnose_objects({.job = job_object(status)}).evidence, Not(Contains(HasSubstr("bad node"))));
}

TEST(Diagnosis, NamesTheNodeThatIsAboutToBeRemoved) {
  Json status = status_in("Running", "PodsRunning", "2 of 2 pods have started");
  status["disruption"] = {{"nodes", {"gpu-7"}},
                          {"reason", "gpu-7 (taint karpenter.sh/disrupted)"},
                          {"requestTime", "2026-11-23T06:30:00Z"}};
  EXPECT_THAT(diagnose_objects({.job = job_object(status)}).evidence,
              Contains(HasSubstr("node gpu-7 (taint karpenter.sh/disrupted) is about to be drained or removed")));
}

TEST(Diagnosis, UsesEventsOfNodeForSigkill) {
  const Json killed = failed_with(record("PodFailed", "pod bert-0-1 on gpu-7 ended with exit code 137 (signal 9)", 137),
                                  "MaxRestartsExceeded");
  EXPECT_EQ(diagnose_objects({.job = job_object(killed)}).cause, DiagnosedCause::kSignal);
  EXPECT_EQ(
      diagnose_objects({.job = job_object(killed), .events = {event_about("Node", "gpu-7", "SystemOOM", "m")}}).cause,
      DiagnosedCause::kOutOfMemory);
}

TEST(Diagnosis, TextFromPodsCannotControlTerminal) {
  const Diagnosis found =
      diagnose_objects({.job = failed_job("PodFailed", "ended: \x1b[2J\x1b]0;x\x07 done", 3),
                        .pods = {pod_object(trainer_ended(3, "Error", "first\nlast \x1b[31mred\xE2\x80\xAE line"))},
                        .events = {event_about("Pod", "bert-0-1", "Bad\x1b[1m", "\x9b text")}});
  const std::string text = diagnosis_text(found, {}, time_of("2026-11-23T07:00:00Z"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_EQ(text.find("\xE2\x80\xAE"), std::string::npos) << text;
}

TEST(Diagnosis, DescribesExitCodes) {
  EXPECT_EQ(exit_code_text(139), "139: ended by signal 11 (SIGSEGV)");
  EXPECT_EQ(exit_code_text(74), "74: reading or writing failed");
  EXPECT_EQ(exit_code_text(42), "42: defined by the command of the container");
  EXPECT_EQ(exit_code_text(-1), "-1: defined by the command of the container");
}

TEST(Objects, AcceptAnyJson) {
  EXPECT_FALSE(pod_view(Json::array()));
  EXPECT_FALSE(pod_view({{"metadata", {{"labels", {{kLabelAttempt, "-1"}, {kLabelNodeRank, "x"}}}}}}));
  const auto pod =
      pod_view({{"metadata", {{"name", 7}, {"labels", {{kLabelAttempt, "2"}, {kLabelNodeRank, "0"}}}}},
                {"status", {{"conditions", 1}, {"containerStatuses", Json::array({7, {{"state", "x"}}})}}}});
  ASSERT_TRUE(pod);
  EXPECT_EQ(pod->attempt, 2);
  EXPECT_EQ(pod_state(*pod), "Pending");
  EXPECT_EQ(event_view("text").count, 1);
  EXPECT_FALSE(node_view(nullptr).ready);
}

}  // namespace
}  // namespace oarlock::cli
