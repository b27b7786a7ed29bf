#include "operator/core/failure.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/contract.h"
#include "tests/unit/operator/failure_fixture.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT

using api::Phase;
using Decision = GroupFailure::Decision;

TEST(FailurePolicy, ReturnsNoneWithoutFailures) {
  for (const Pod& other : std::vector<Pod>{pod_of_rank(1), pod_of_rank(1).running(), pod_of_rank(1).ended(0),
                                           pod_of_rank(1).trainer_ended(0),
                                           pod_of_rank(1).ended(0).deleting().stop_requested(at_second(70)),
                                           pod_of_rank(1).waiting("ImagePullBackOff")}) {
    EXPECT_EQ(judged({pod_of_rank(0).running(), other}).decision, Decision::kNone);
  }
}

struct Row {
  const char* name;
  std::vector<Pod> pods;
  Decision decision;
  const char* reason;
  const char* message;
  const char* root_cause;  // name of the root cause's pod; "" if there is none
  std::optional<int> exit_code;
};

TEST(FailurePolicy, DecidesByRootCause) {
  Pod not_admitted = pod_of_rank(1).scheduled();
  not_admitted.phase = PodPhase::kFailed;
  not_admitted.reason = "UnexpectedAdmissionError";
  not_admitted.message = "no devices";
  const Row rows[] = {
      {.name = "exit 1",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(1)},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 1",
       .root_cause = "bert-0-1",
       .exit_code = 1},
      {.name = "trainer ended, sidecar runs",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).trainer_ended(1)},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 1",
       .root_cause = "bert-0-1",
       .exit_code = 1},
      {.name = "signal",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(137)},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 137 (signal 9)",
       .root_cause = "bert-0-1",
       .exit_code = 137},
      {.name = "OOM",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(137, "", "OOMKilled")},
       .decision = Decision::kRestart,
       .reason = "OOMKilled",
       .message = "pod bert-0-1 on node-1 ended with exit code 137 (OOMKilled)",
       .root_cause = "bert-0-1",
       .exit_code = 137},
      {.name = "termination message",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(1, kTerminationMessage)},
       .decision = Decision::kRestart,
       .reason = "DataMissing",
       .message = "pod bert-0-1 on node-1 ended with exit code 1: DataMissing: /data is empty",
       .root_cause = "bert-0-1",
       .exit_code = 1},
      {.name = "last line of the log",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(1, "Traceback\n  line\nRuntimeError: NCCL\n")},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 1: RuntimeError: NCCL",
       .root_cause = "bert-0-1",
       .exit_code = 1},
      {.name = "permanent",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(78, kTerminationMessage)},
       .decision = Decision::kFail,
       .reason = "PermanentFailure",
       .message =
           "pod bert-0-1 on node-1 ended with exit code 78: DataMissing: /data is empty; a restart would fail again",
       .root_cause = "bert-0-1",
       .exit_code = 78},
      {.name = "first permanent code",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(64)},
       .decision = Decision::kFail,
       .reason = "PermanentFailure",
       .message = "pod bert-0-1 on node-1 ended with exit code 64; a restart would fail again",
       .root_cause = "bert-0-1",
       .exit_code = 64},
      {.name = "below the permanent codes",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(63)},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 63",
       .root_cause = "bert-0-1",
       .exit_code = 63},
      {.name = "above the permanent codes",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(79)},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 79",
       .root_cause = "bert-0-1",
       .exit_code = 79},
      {.name = "interrupted",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).ended(75)},
       .decision = Decision::kRestart,
       .reason = "Interrupted",
       .message = "pod bert-0-1 on node-1 ended with exit code 75",
       .root_cause = "bert-0-1",
       .exit_code = 75},
      {.name = "a permanent failure takes precedence over an earlier exit",
       .pods = {pod_of_rank(0).ended(1).finished_at(at_second(40)),
                pod_of_rank(1).ended(78).finished_at(at_second(50))},
       .decision = Decision::kFail,
       .reason = "PermanentFailure",
       .message = "pod bert-0-1 on node-1 ended with exit code 78; a restart would fail again",
       .root_cause = "bert-0-1",
       .exit_code = 78},
      {.name = "the earliest exit is the root cause",
       .pods = {pod_of_rank(0).ended(1).finished_at(at_second(50)), pod_of_rank(1).ended(2).finished_at(at_second(49))},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 2",
       .root_cause = "bert-0-1",
       .exit_code = 2},
      {.name = "a collateral failure is not the root cause",
       .pods = {pod_of_rank(0).ended(76).finished_at(at_second(10)), pod_of_rank(1).ended(1)},
       .decision = Decision::kRestart,
       .reason = "PodFailed",
       .message = "pod bert-0-1 on node-1 ended with exit code 1",
       .root_cause = "bert-0-1",
       .exit_code = 1},
      {.name = "only collateral, all ended",
       .pods = {pod_of_rank(0).ended(76), pod_of_rank(1).ended(76)},
       .decision = Decision::kRestart,
       .reason = "PeerLost",
       .message = "a rank was lost and no pod reports which one: pod bert-0-0 on node-1 ended with exit code 76",
       .root_cause = "",
       .exit_code = std::nullopt},
      {.name = "evicted",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).evicted("low on memory")},
       .decision = Decision::kRestart,
       .reason = "Evicted",
       .message = "pod bert-0-1 on node-1 failed (Evicted): low on memory",
       .root_cause = "bert-0-1",
       .exit_code = std::nullopt},
      {.name = "being deleted",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).running().deleting()},
       .decision = Decision::kRestart,
       .reason = "PodDeleted",
       .message = "pod bert-0-1 on node-1 was deleted",
       .root_cause = "bert-0-1",
       .exit_code = std::nullopt},
      {.name = "taint manager",
       .pods = {pod_of_rank(0).running(), pod_of_rank(1).running().deleting().disrupted("DeletionByTaintManager")},
       .decision = Decision::kRestart,
       .reason = "DeletionByTaintManager",
       .message = "pod bert-0-1 on node-1 was deleted (DeletionByTaintManager)",
       .root_cause = "bert-0-1",
       .exit_code = std::nullopt},
      {.name = "a drain explains the other's exit",
       .pods = {pod_of_rank(0).ended(1).finished_at(at_second(10)), pod_of_rank(1).ended(143).deleting()},
       .decision = Decision::kRestart,
       .reason = "PodDeleted",
       .message = "pod bert-0-1 on node-1 was deleted",
       .root_cause = "bert-0-1",
       .exit_code = 143},
      {.name = "lost",
       .pods = {pod_of_rank(0).running()},
       .decision = Decision::kRestart,
       .reason = "PodLost",
       .message = "pod bert-0-1 no longer exists",
       .root_cause = "bert-0-1",
       .exit_code = std::nullopt},
      {.name = "no container started",
       .pods = {pod_of_rank(0).running(), not_admitted},
       .decision = Decision::kRestart,
       .reason = "UnexpectedAdmissionError",
       .message = "pod bert-0-1 on node-1 was rejected by its node (UnexpectedAdmissionError): no devices",
       .root_cause = "bert-0-1",
       .exit_code = std::nullopt},
  };
  for (const Row& row : rows) {
    const GroupFailure failure = judged(row.pods);
    EXPECT_EQ(failure.decision, row.decision) << row.name;
    EXPECT_EQ(failure.reason, row.reason) << row.name;
    EXPECT_EQ(failure.message, row.message) << row.name;
    EXPECT_EQ(failure.record.pod, row.root_cause) << row.name;
    EXPECT_EQ(failure.record.exit_code, row.exit_code) << row.name;
    EXPECT_EQ(failure.confirm_absent, std::string(row.name) == "lost" ? "bert-0-1" : "") << row.name;
  }
}

TEST(FailurePolicy, RecordsTheRankThatFailedFirst) {
  const auto recorded = [](int exit_code, int rank) {
    const std::string message = to_json(TerminationMessage{.rank = rank, .reason = "Failed", .message = "m"});
    return judged({pod_of_rank(0).ended(0), pod_of_rank(1).ended(exit_code, message)}).record.rank;
  };
  EXPECT_EQ(recorded(1, 1), 1);
  EXPECT_EQ(recorded(76, 1), std::nullopt) << "another rank is the root cause";
  for (const int rank : {-1, 2, 2'000'000'000}) EXPECT_EQ(recorded(1, rank), std::nullopt) << "a pod is not trusted";
  EXPECT_EQ(judged({pod_of_rank(0).ended(0), pod_of_rank(1).ended(1, "a log line")}).record.rank, std::nullopt);
}

TEST(FailurePolicy, FailsImmediatelyOnPermanentExitCodes) {
  for (int code = 1; code < 256; ++code) {
    const bool is_permanent = code >= 64 && code <= 78 && code != 75 && code != 76;
    const GroupFailure failure = judged({pod_of_rank(0).ended(0), pod_of_rank(1).ended(code)});
    EXPECT_EQ(failure.decision, is_permanent ? Decision::kFail : Decision::kRestart) << code;
  }
}

TEST(FailurePolicy, PermanentExitCodeAfterAStopNeedsAnInvalidInput) {
  const auto decision_of = [](int exit_code, const std::string& reason) {
    const std::string message =
        reason.empty() ? "" : to_json(TerminationMessage{.rank = 1, .reason = reason, .message = ""});
    const auto decide = [](const Pod& one) { return judged({pod_of_rank(0).running(), one}).decision; };
    EXPECT_EQ(decide(pod_of_rank(1).ended(exit_code, message)), Decision::kFail) << "not stopped, " << reason;
    const Decision drained = decide(pod_of_rank(1).ended(exit_code, message).disrupted("EvictionByEvictionAPI"));
    EXPECT_EQ(decide(pod_of_rank(1).ended(exit_code, message).deleting()), drained) << reason;
    return drained;
  };
  EXPECT_EQ(decision_of(69, ""), Decision::kRestart);
  EXPECT_EQ(decision_of(70, "Failed"), Decision::kRestart) << "the launcher's message about a rank without one";
  EXPECT_EQ(decision_of(74, "IoError"), Decision::kRestart) << "its storage may have been stopped, too";
  for (const char* reason :
       {"UsageInvalid", "DataInvalid", "InputMissing", "CheckpointUnreadable", "PermissionDenied", "ConfigInvalid"})
    EXPECT_EQ(decision_of(78, reason), Decision::kFail);
}

TEST(FailurePolicy, LogLineOfAStoppedPodDoesNotFailTheJob) {
  const char* line = R"({"level":"error","rank":1,"reason":"ConfigInvalid","msg":"stopped"})";
  EXPECT_EQ(judged({pod_of_rank(0).running(), pod_of_rank(1).ended(70, line).deleting()}).decision, Decision::kRestart);
}

TEST(FailurePolicy, EnforcesMaxRestarts) {
  EXPECT_EQ(judged({pod_of_rank(0).running(), pod_of_rank(1).ended(1)}, Phase::kRunning, 1).decision,
            Decision::kRestart);
  const GroupFailure failure = judged({pod_of_rank(0).running(), pod_of_rank(1).ended(1)}, Phase::kRunning, 2);
  EXPECT_EQ(failure.decision, Decision::kFail);
  EXPECT_EQ(failure.reason, "MaxRestartsExceeded");
  EXPECT_EQ(failure.message, "pod bert-0-1 on node-1 ended with exit code 1; 2 of 2 restarts are used up");
  EXPECT_EQ(failure.record.reason, "PodFailed");
}

TEST(FailurePolicy, MissingPodIsLostOnlyWhileRunning) {
  EXPECT_EQ(judged({pod_of_rank(0).running()}, Phase::kPending).decision, Decision::kNone);
  EXPECT_EQ(judged({pod_of_rank(0).running()}, Phase::kRestarting).decision, Decision::kNone);
  EXPECT_EQ(judged({pod_of_rank(0).running()}, Phase::kRunning).decision, Decision::kRestart);
}

TEST(FailurePolicy, ReplacedPodNeedsNoConfirmation) {
  const GroupFailure failure = judged({pod_of_rank(0).running(), pod_of_rank(1).running().owner("other")});
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_EQ(failure.confirm_absent, "");
}

TEST(FailurePolicy, CollateralFailureWaitsForRootCause) {
  const GroupFailure soon = judged({pod_of_rank(0).ended(76).finished_at(at_second(57)), pod_of_rank(1).running()});
  EXPECT_EQ(soon.decision, Decision::kWait);
  EXPECT_EQ(soon.wait, std::chrono::seconds(7));
  EXPECT_EQ(judged({pod_of_rank(0).ended(76).finished_at(at_second(50)), pod_of_rank(1).running()}).decision,
            Decision::kRestart)
      << "the grace period has passed";
  EXPECT_EQ(judged({pod_of_rank(0).ended(76).finished_at(at_second(3600)), pod_of_rank(1).running()}).decision,
            Decision::kRestart)
      << "the clock of the node is ahead";
  EXPECT_EQ(judged({pod_of_rank(0).ended(76), pod_of_rank(1).running().deleting()}).record.pod, "bert-0-1");
}

}  // namespace
}  // namespace oarlock::test
