#include "cli/cluster/diagnosis.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "cli/cluster/cause_text.h"
#include "tests/unit/cli/cluster/diagnosis_objects.h"

namespace oarlock::cli {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
