#include "operator/core/failure_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "operator/core/failure_case.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using Decision = Failure::Decision;

constexpr char kLastWords[] =
    R"({"rank":1,"step":7,"checkpointStep":5,"reason":"DataMissing","message":"/data is empty"})";

PodBuilder pod(int node_rank) { return {"bert", 0, node_rank}; }

Failure judged(const std::vector<Pod>& pods, Phase phase = Phase::kRunning, int restarts = 0) {
  const Observed observed = seen(JobBuilder().max_restarts(2).phase(phase).restarts(restarts), pods);
  return judge(observed.job, split(observed), observed.now);
}

TEST(FailurePolicy, NothingFailed) {
  for (const Pod& other :
       std::vector<Pod>{pod(1), pod(1).running(), pod(1).ended(0), pod(1).trainer_ended(0),
                        pod(1).ended(0).deleting().stop_requested(at_second(70)), pod(1).waiting("ImagePullBackOff")}) {
    EXPECT_EQ(judged({pod(0).running(), other}).decision, Decision::kNone);
  }
}

struct Row {
  const char* what;
  std::vector<Pod> pods;
  Decision decision;
  const char* reason;
  const char* message;
  const char* blamed;  // pod; "": nobody
  std::optional<int> exit_code;
};

TEST(FailurePolicy, Table) {
  const Row rows[] = {
      {"exit 1",
       {pod(0).running(), pod(1).ended(1)},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 1",
       "bert-0-1",
       1},
      {"trainer ended, sidecar runs",
       {pod(0).running(), pod(1).trainer_ended(1)},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 1",
       "bert-0-1",
       1},
      {"signal",
       {pod(0).running(), pod(1).ended(137)},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 137 (signal 9)",
       "bert-0-1",
       137},
      {"OOM",
       {pod(0).running(), pod(1).ended(137, "", "OOMKilled")},
       Decision::kRestart,
       "OOMKilled",
       "pod bert-0-1 on node-1 ended with exit code 137 (OOMKilled)",
       "bert-0-1",
       137},
      {"termination message",
       {pod(0).running(), pod(1).ended(1, kLastWords)},
       Decision::kRestart,
       "DataMissing",
       "pod bert-0-1 on node-1 ended with exit code 1: DataMissing: /data is empty",
       "bert-0-1",
       1},
      {"last line of the log",
       {pod(0).running(), pod(1).ended(1, "Traceback\n  line\nRuntimeError: NCCL\n")},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 1: RuntimeError: NCCL",
       "bert-0-1",
       1},
      {"permanent",
       {pod(0).running(), pod(1).ended(78, kLastWords)},
       Decision::kFail,
       "PermanentFailure",
       "pod bert-0-1 on node-1 ended with exit code 78: DataMissing: /data is empty; a restart would fail again",
       "bert-0-1",
       78},
      {"first permanent code",
       {pod(0).running(), pod(1).ended(64)},
       Decision::kFail,
       "PermanentFailure",
       "pod bert-0-1 on node-1 ended with exit code 64; a restart would fail again",
       "bert-0-1",
       64},
      {"below the permanent codes",
       {pod(0).running(), pod(1).ended(63)},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 63",
       "bert-0-1",
       63},
      {"above the permanent codes",
       {pod(0).running(), pod(1).ended(79)},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 79",
       "bert-0-1",
       79},
      {"interrupted",
       {pod(0).running(), pod(1).ended(75)},
       Decision::kRestart,
       "Interrupted",
       "pod bert-0-1 on node-1 ended with exit code 75",
       "bert-0-1",
       75},
      {"permanent beats an earlier exit",
       {pod(0).ended(1).finished_at(at_second(40)), pod(1).ended(78).finished_at(at_second(50))},
       Decision::kFail,
       "PermanentFailure",
       "pod bert-0-1 on node-1 ended with exit code 78; a restart would fail again",
       "bert-0-1",
       78},
      {"the first exit is to blame",
       {pod(0).ended(1).finished_at(at_second(50)), pod(1).ended(2).finished_at(at_second(49))},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 2",
       "bert-0-1",
       2},
      {"collateral is not blamed",
       {pod(0).ended(76).finished_at(at_second(10)), pod(1).ended(1)},
       Decision::kRestart,
       "PodFailed",
       "pod bert-0-1 on node-1 ended with exit code 1",
       "bert-0-1",
       1},
      {"only collateral, all ended",
       {pod(0).ended(76), pod(1).ended(76)},
       Decision::kRestart,
       "PeerLost",
       "a rank was lost and no pod tells which: pod bert-0-0 on node-1 ended with exit code 76",
       "",
       std::nullopt},
      {"evicted",
       {pod(0).running(), pod(1).evicted("low on memory")},
       Decision::kRestart,
       "Evicted",
       "pod bert-0-1 on node-1 failed (Evicted): low on memory",
       "bert-0-1",
       std::nullopt},
      {"being deleted",
       {pod(0).running(), pod(1).running().deleting()},
       Decision::kRestart,
       "PodDeleted",
       "pod bert-0-1 on node-1 was deleted",
       "bert-0-1",
       std::nullopt},
      {"taint manager",
       {pod(0).running(), pod(1).running().deleting().disrupted("DeletionByTaintManager")},
       Decision::kRestart,
       "DeletionByTaintManager",
       "pod bert-0-1 on node-1 was deleted (DeletionByTaintManager)",
       "bert-0-1",
       std::nullopt},
      {"a drain explains the other's exit",
       {pod(0).ended(1).finished_at(at_second(10)), pod(1).ended(143).deleting()},
       Decision::kRestart,
       "PodDeleted",
       "pod bert-0-1 on node-1 was deleted",
       "bert-0-1",
       143},
      {"gone", {pod(0).running()}, Decision::kRestart, "PodLost", "pod bert-0-1 is gone", "bert-0-1", std::nullopt},
      {"no container started",
       {pod(0).running(),
        [] {
          Pod out = pod(1).scheduled();
          out.phase = PodPhase::kFailed;
          out.reason = "UnexpectedAdmissionError";
          out.message = "no devices";
          return out;
        }()},
       Decision::kRestart,
       "UnexpectedAdmissionError",
       "pod bert-0-1 on node-1 failed (UnexpectedAdmissionError): no devices",
       "bert-0-1",
       std::nullopt},
  };
  for (const Row& row : rows) {
    const Failure failure = judged(row.pods);
    EXPECT_EQ(failure.decision, row.decision) << row.what;
    EXPECT_EQ(failure.reason, row.reason) << row.what;
    EXPECT_EQ(failure.message, row.message) << row.what;
    EXPECT_EQ(failure.record.pod, row.blamed) << row.what;
    EXPECT_EQ(failure.record.exit_code, row.exit_code) << row.what;
    EXPECT_EQ(failure.confirm_absent, std::string(row.what) == "gone" ? "bert-0-1" : "") << row.what;
  }
}

TEST(FailurePolicy, EveryPermanentCodeFailsAtOnce) {
  for (int code = 1; code < 256; ++code) {
    const bool is_permanent = code >= 64 && code <= 78 && code != 75 && code != 76;
    const Failure failure = judged({pod(0).ended(0), pod(1).ended(code)});
    EXPECT_EQ(failure.decision, is_permanent ? Decision::kFail : Decision::kRestart) << code;
  }
}

TEST(FailurePolicy, CountsExactly) {
  EXPECT_EQ(judged({pod(0).running(), pod(1).ended(1)}, Phase::kRunning, 1).decision, Decision::kRestart);
  const Failure failure = judged({pod(0).running(), pod(1).ended(1)}, Phase::kRunning, 2);
  EXPECT_EQ(failure.decision, Decision::kFail);
  EXPECT_EQ(failure.reason, "MaxRestartsExceeded");
  EXPECT_EQ(failure.message, "pod bert-0-1 on node-1 ended with exit code 1; 2 of 2 restarts are used up");
  EXPECT_EQ(failure.record.reason, "PodFailed");
}

TEST(FailurePolicy, AMissingPodIsLostOnlyOnceTheGroupHasRun) {
  EXPECT_EQ(judged({pod(0).running()}, Phase::kPending).decision, Decision::kNone);
  EXPECT_EQ(judged({pod(0).running()}, Phase::kRestarting).decision, Decision::kNone);
  EXPECT_EQ(judged({pod(0).running()}, Phase::kRunning).decision, Decision::kRestart);
}

TEST(FailurePolicy, ALostPodWhoseNameIsTakenNeedsNoSecondLook) {
  const Failure failure = judged({pod(0).running(), pod(1).running().owner("other")});
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_EQ(failure.confirm_absent, "");
}

TEST(FailurePolicy, CollateralWaitsForTheCulprit) {
  const Failure soon = judged({pod(0).ended(76).finished_at(at_second(57)), pod(1).running()});
  EXPECT_EQ(soon.decision, Decision::kWait);
  EXPECT_EQ(soon.wait, std::chrono::seconds(7));
  EXPECT_EQ(judged({pod(0).ended(76).finished_at(at_second(50)), pod(1).running()}).decision, Decision::kRestart)
      << "long enough";
  EXPECT_EQ(judged({pod(0).ended(76).finished_at(at_second(3600)), pod(1).running()}).decision, Decision::kRestart)
      << "a clock that is ahead";
  EXPECT_EQ(judged({pod(0).ended(76), pod(1).running().deleting()}).record.pod, "bert-0-1");
}

// ---- failurePolicy.rules ---------------------------------------------------------------------------------------

using api::FailureAction;

api::FailureRule on_exit(FailureAction action, api::ExitCodeOperator operation, std::vector<int64_t> codes) {
  return {action, api::ExitCodeMatch{operation, std::move(codes)}, {}, {}};
}
api::FailureRule in(FailureAction action, std::vector<int64_t> codes) {
  return on_exit(action, api::ExitCodeOperator::kIn, std::move(codes));
}
api::FailureRule not_in(FailureAction action, std::vector<int64_t> codes) {
  return on_exit(action, api::ExitCodeOperator::kNotIn, std::move(codes));
}
api::FailureRule on_reason(FailureAction action, const std::string& reason) {
  return {action, std::nullopt, {reason}, {}};
}
api::FailureRule on_disruption(FailureAction action) {
  return {action, std::nullopt, {}, {{"DisruptionTarget", "True"}}};
}

struct RuleRow {
  const char* what;
  std::vector<api::FailureRule> rules;
  Pod pod;  // of node rank 1
  Decision decision;
  bool is_charged;
  const char* restart_reason;  // "": no restart
};

TEST(FailurePolicy, RulesTable) {
  const Pod oom = pod(1).ended(137, "", "OOMKilled");
  const Pod preempted = pod(1).ended(143).disrupted("PreemptionByScheduler");
  const RuleRow rows[] = {
      {"no rule: an exit counts", {}, pod(1).ended(1), Decision::kRestart, true, "PodFailed"},
      {"no rule: a disruption is free", {}, preempted, Decision::kRestart, false, "Disrupted"},
      {"no rule: a disruption before any exit",
       {},
       pod(1).running().disrupted("DeletionByTaintManager").deleting(),
       Decision::kRestart,
       false,
       "Disrupted"},
      {"no rule: an eviction for the pod's own excess counts",
       {},
       pod(1).evicted(),
       Decision::kRestart,
       true,
       "Evicted"},
      {"no rule: kubectl delete counts", {}, pod(1).running().deleting(), Decision::kRestart, true, "PodDeleted"},
      {"no rule: OOM counts", {}, oom, Decision::kRestart, true, "OOMKilled"},
      {"In", {in(FailureAction::kFail, {3, 42})}, pod(1).ended(42), Decision::kFail, true, ""},
      {"In, another code",
       {in(FailureAction::kFail, {3, 42})},
       pod(1).ended(41),
       Decision::kRestart,
       true,
       "PodFailed"},
      {"NotIn", {not_in(FailureAction::kFail, {3})}, pod(1).ended(42), Decision::kFail, true, ""},
      {"NotIn, a listed code",
       {not_in(FailureAction::kFail, {3})},
       pod(1).ended(3),
       Decision::kRestart,
       true,
       "PodFailed"},
      {"NotIn never means a lost peer",
       {not_in(FailureAction::kFail, {3})},
       pod(1).ended(76),
       Decision::kRestart,
       true,
       "PeerLost"},
      {"a lost peer by name", {in(FailureAction::kFail, {76})}, pod(1).ended(76), Decision::kFail, true, ""},
      {"a permanent code that may restart",
       {in(FailureAction::kRestart, {78})},
       pod(1).ended(78),
       Decision::kRestart,
       true,
       "PodFailed"},
      {"a free exit", {in(FailureAction::kRestartFree, {1})}, pod(1).ended(1), Decision::kRestart, false, "PodFailed"},
      {"an exit code is none without an exit",
       {not_in(FailureAction::kFail, {3})},
       pod(1).evicted(),
       Decision::kRestart,
       true,
       "Evicted"},
      {"OOMKilled", {on_reason(FailureAction::kFail, "OOMKilled")}, oom, Decision::kFail, true, ""},
      {"Evicted is free",
       {on_reason(FailureAction::kRestartFree, "Evicted")},
       pod(1).evicted(),
       Decision::kRestart,
       false,
       "Evicted"},
      {"the trainer's own reason",
       {on_reason(FailureAction::kFail, "DataMissing")},
       pod(1).ended(1, kLastWords),
       Decision::kFail,
       true,
       ""},
      {"PodDeleted",
       {on_reason(FailureAction::kRestartFree, "PodDeleted")},
       pod(1).running().deleting(),
       Decision::kRestart,
       false,
       "PodDeleted"},
      {"Error is not a lost peer's",
       {on_reason(FailureAction::kFail, "Error")},
       pod(1).ended(76),
       Decision::kRestart,
       true,
       "PeerLost"},
      {"DisruptionTarget fails", {on_disruption(FailureAction::kFail)}, preempted, Decision::kFail, true, ""},
      {"DisruptionTarget counts",
       {on_disruption(FailureAction::kRestart)},
       preempted,
       Decision::kRestart,
       true,
       "Disrupted"},
      {"not disrupted", {on_disruption(FailureAction::kFail)}, pod(1).ended(1), Decision::kRestart, true, "PodFailed"},
      {"ignored", {in(FailureAction::kIgnore, {3})}, pod(1).ended(3), Decision::kNone, true, ""},
      {"the first rule decides",
       {in(FailureAction::kIgnore, {3}), not_in(FailureAction::kFail, {4})},
       pod(1).ended(3),
       Decision::kNone,
       true,
       ""},
      {"the first rule decides, the other way",
       {not_in(FailureAction::kFail, {4}), in(FailureAction::kIgnore, {3})},
       pod(1).ended(3),
       Decision::kFail,
       true,
       ""},
  };
  for (const RuleRow& row : rows) {
    JobBuilder job;
    job.phase(Phase::kRunning);
    for (const api::FailureRule& rule : row.rules) job.rule(rule);
    // The other rank has ended too, so that nobody waits for somebody to blame.
    const Observed observed = seen(job, {pod(0).ended(0), row.pod});
    const Failure failure = judge(observed.job, split(observed), observed.now);
    EXPECT_EQ(failure.decision, row.decision) << row.what;
    EXPECT_EQ(failure.is_charged, row.is_charged) << row.what;
    EXPECT_EQ(failure.restart_reason, row.restart_reason) << row.what;
  }
}

TEST(FailurePolicy, ARuleThatFailsTheJobIsNamed) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRunning).rule(in(FailureAction::kFail, {1})).rule(in(FailureAction::kFail, {42})),
           {pod(0).ended(143).deleting(), pod(1).ended(42)});
  const Failure failure = judge(observed.job, split(observed), observed.now);
  EXPECT_EQ(failure.decision, Decision::kFail);
  EXPECT_EQ(failure.reason, "FailurePolicy");
  EXPECT_EQ(failure.message, "pod bert-0-1 on node-1 ended with exit code 42; failurePolicy.rules[1] fails the job")
      << "before a pod that was taken away";
}

// The rank whose GPU failed is to blame for the others' lost peers, and the record names its node.
TEST(FailurePolicy, FailedDeviceRestartsAndNamesTheNode) {
  const char* const words =
      R"({"rank":1,"step":7,"checkpointStep":5,"reason":"DeviceFailed","message":"host bert-0-1, cuda:3: uncorrectable ECC error"})";
  const Failure failure =
      judged({pod(0).ended(76).finished_at(at_second(40)), pod(1).ended(79, words).finished_at(at_second(50))});
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_TRUE(failure.is_charged);
  EXPECT_EQ(failure.reason, "DeviceFailed");
  EXPECT_EQ(failure.restart_reason, "DeviceFailed");
  EXPECT_EQ(failure.record.node, "node-1");
  EXPECT_EQ(failure.message,
            "pod bert-0-1 on node-1 ended with exit code 79: DeviceFailed: host bert-0-1, cuda:3: uncorrectable ECC "
            "error");
  const Observed free = seen(JobBuilder().phase(Phase::kRunning).rule(in(FailureAction::kRestartFree, {79})),
                             {pod(0).ended(76), pod(1).ended(79, words)});
  EXPECT_FALSE(judge(free.job, split(free), free.now).is_charged);
}

TEST(FailurePolicy, AFreeRestartNeedsNoneThatIsLeft) {
  const Observed observed = seen(JobBuilder().max_restarts(0).phase(Phase::kRunning),
                                 {pod(0).running(), pod(1).running().deleting().disrupted("PreemptionByScheduler")});
  const Failure failure = judge(observed.job, split(observed), observed.now);
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_FALSE(failure.is_charged);
}

TEST(FailurePolicy, EveryRestartReasonIsOfTheList) {
  for (const Pod& one :
       std::vector<Pod>{pod(1).ended(1), pod(1).ended(137, "", "OOMKilled"), pod(1).evicted(),
                        pod(1).ended(79, R"({"reason":"DeviceFailed"})"), pod(1).running().deleting(), pod(1).ended(75),
                        pod(1).ended(76), pod(1).running().deleting().disrupted("X")}) {
    const auto all = restart_reasons();
    const Failure failure = judged({pod(0).ended(0), one});
    EXPECT_NE(std::find(all.begin(), all.end(), failure.restart_reason), all.end()) << failure.restart_reason;
  }
  EXPECT_EQ(judged({pod(0).ended(0)}).restart_reason, "PodLost");
}

}  // namespace
}  // namespace oarlock::test
