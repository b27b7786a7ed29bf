// failurePolicy.rules, and which failures are free.
#include "operator/core/failure.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/contract.h"
#include "tests/unit/operator/failure_fixture.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::FailureAction;
using api::Phase;
using Decision = GroupFailure::Decision;

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
api::FailureRule on_disruption(FailureAction action) { return {action, std::nullopt, {}, {api::PodConditionMatch()}}; }

struct RuleRow {
  const char* name;
  std::vector<api::FailureRule> rules;
  Pod pod;  // of node rank 1
  Decision decision;
  bool is_charged;
  const char* restart_reason;  // "": no restart
};

TEST(FailurePolicy, AppliesFirstMatchingRule) {
  const Pod oom = pod_of_rank(1).ended(137, "", "OOMKilled");
  const Pod preempted = pod_of_rank(1).ended(143).disrupted("PreemptionByScheduler");
  const RuleRow rows[] = {
      {.name = "no rule: an exit counts",
       .rules = {},
       .pod = pod_of_rank(1).ended(1),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodFailed"},
      {.name = "no rule: a disruption is free",
       .rules = {},
       .pod = preempted,
       .decision = Decision::kRestart,
       .is_charged = false,
       .restart_reason = "Disrupted"},
      {.name = "no rule: a disruption before any exit",
       .rules = {},
       .pod = pod_of_rank(1).running().disrupted("DeletionByTaintManager").deleting(),
       .decision = Decision::kRestart,
       .is_charged = false,
       .restart_reason = "Disrupted"},
      {.name = "no rule: an eviction for the pod's own excess counts",
       .rules = {},
       .pod = pod_of_rank(1).evicted(),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "Evicted"},
      {.name = "no rule: kubectl delete counts",
       .rules = {},
       .pod = pod_of_rank(1).running().deleting(),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodDeleted"},
      {.name = "no rule: OOM counts",
       .rules = {},
       .pod = oom,
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "OOMKilled"},
      {.name = "In",
       .rules = {in(FailureAction::kFail, {3, 42})},
       .pod = pod_of_rank(1).ended(42),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "In, another code",
       .rules = {in(FailureAction::kFail, {3, 42})},
       .pod = pod_of_rank(1).ended(41),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodFailed"},
      {.name = "NotIn",
       .rules = {not_in(FailureAction::kFail, {3})},
       .pod = pod_of_rank(1).ended(42),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "NotIn, a listed code",
       .rules = {not_in(FailureAction::kFail, {3})},
       .pod = pod_of_rank(1).ended(3),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodFailed"},
      {.name = "NotIn does not match a collateral failure",
       .rules = {not_in(FailureAction::kFail, {3})},
       .pod = pod_of_rank(1).ended(76),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PeerLost"},
      {.name = "In matches a listed collateral failure",
       .rules = {in(FailureAction::kFail, {76})},
       .pod = pod_of_rank(1).ended(76),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "a permanent code that may restart",
       .rules = {in(FailureAction::kRestart, {78})},
       .pod = pod_of_rank(1).ended(78),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodFailed"},
      {.name = "a free exit",
       .rules = {in(FailureAction::kRestartFree, {1})},
       .pod = pod_of_rank(1).ended(1),
       .decision = Decision::kRestart,
       .is_charged = false,
       .restart_reason = "PodFailed"},
      {.name = "NotIn needs an exit code",
       .rules = {not_in(FailureAction::kFail, {3})},
       .pod = pod_of_rank(1).evicted(),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "Evicted"},
      {.name = "OOMKilled",
       .rules = {on_reason(FailureAction::kFail, "OOMKilled")},
       .pod = oom,
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "Evicted is free",
       .rules = {on_reason(FailureAction::kRestartFree, "Evicted")},
       .pod = pod_of_rank(1).evicted(),
       .decision = Decision::kRestart,
       .is_charged = false,
       .restart_reason = "Evicted"},
      {.name = "the trainer's own reason",
       .rules = {on_reason(FailureAction::kFail, "DataMissing")},
       .pod = pod_of_rank(1).ended(1, kTerminationMessage),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "PodDeleted",
       .rules = {on_reason(FailureAction::kRestartFree, "PodDeleted")},
       .pod = pod_of_rank(1).running().deleting(),
       .decision = Decision::kRestart,
       .is_charged = false,
       .restart_reason = "PodDeleted"},
      {.name = "Error does not match a collateral failure",
       .rules = {on_reason(FailureAction::kFail, "Error")},
       .pod = pod_of_rank(1).ended(76),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PeerLost"},
      {.name = "DisruptionTarget fails",
       .rules = {on_disruption(FailureAction::kFail)},
       .pod = preempted,
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "DisruptionTarget counts",
       .rules = {on_disruption(FailureAction::kRestart)},
       .pod = preempted,
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "Disrupted"},
      {.name = "not disrupted",
       .rules = {on_disruption(FailureAction::kFail)},
       .pod = pod_of_rank(1).ended(1),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodFailed"},
      {.name = "ignored",
       .rules = {in(FailureAction::kIgnore, {3})},
       .pod = pod_of_rank(1).ended(3),
       .decision = Decision::kNone,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "a pod that was removed has not completed its work, whatever its exit code",
       .rules = {in(FailureAction::kIgnore, {143})},
       .pod = pod_of_rank(1).ended(143).deleting(),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodDeleted"},
      {.name = "a disruption after the end of the trainer is not its reason",
       .rules = {on_disruption(FailureAction::kRestartFree), in(FailureAction::kFail, {3})},
       .pod = pod_of_rank(1)
                  .trainer_ended(3)
                  .finished_at(at_second(20))
                  .disrupted("EvictionByEvictionAPI")
                  .deleting()
                  .stop_requested(at_second(31)),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "an ignored exit code of a pod that was deleted long after its trainer ended",
       .rules = {in(FailureAction::kIgnore, {3})},
       .pod = pod_of_rank(1).trainer_ended(3).finished_at(at_second(20)).deleting().stop_requested(at_second(31)),
       .decision = Decision::kNone,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "the same within the tolerance of the clocks",
       .rules = {in(FailureAction::kIgnore, {3})},
       .pod = pod_of_rank(1).trainer_ended(3).finished_at(at_second(20)).deleting().stop_requested(at_second(30)),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodDeleted"},
      {.name = "a failure long before a drain counts",
       .rules = {},
       .pod = pod_of_rank(1)
                  .trainer_ended(1)
                  .finished_at(at_second(20))
                  .disrupted("EvictionByEvictionAPI")
                  .deleting()
                  .stop_requested(at_second(31)),
       .decision = Decision::kRestart,
       .is_charged = true,
       .restart_reason = "PodFailed"},
      {.name = "an ignored exit code of a preempted pod, and the next rule",
       .rules = {in(FailureAction::kIgnore, {1}), in(FailureAction::kFail, {1})},
       .pod = pod_of_rank(1).ended(1).disrupted("PreemptionByScheduler").deleting(),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "the first rule decides",
       .rules = {in(FailureAction::kIgnore, {3}), not_in(FailureAction::kFail, {4})},
       .pod = pod_of_rank(1).ended(3),
       .decision = Decision::kNone,
       .is_charged = false,
       .restart_reason = ""},
      {.name = "the first rule decides, the other way",
       .rules = {not_in(FailureAction::kFail, {4}), in(FailureAction::kIgnore, {3})},
       .pod = pod_of_rank(1).ended(3),
       .decision = Decision::kFail,
       .is_charged = false,
       .restart_reason = ""},
  };
  for (const RuleRow& row : rows) {
    JobBuilder job;
    job.phase(Phase::kRunning);
    for (const api::FailureRule& rule : row.rules) job.rule(rule);
    // The other rank has ended too, so that the decision does not wait for another root cause.
    const Observed observed = seen(job, {pod_of_rank(0).ended(0), row.pod});
    const GroupFailure failure = evaluate_failure_policy(observed, classify_objects(observed));
    EXPECT_EQ(failure.decision, row.decision) << row.name;
    EXPECT_EQ(failure.is_charged(), row.is_charged) << row.name;
    EXPECT_EQ(failure.restart_reason, row.restart_reason) << row.name;
  }
}

TEST(FailurePolicy, MessageNamesTheRuleThatFailsTheJob) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRunning).rule(in(FailureAction::kFail, {1})).rule(in(FailureAction::kFail, {42})),
           {pod_of_rank(0).ended(143).deleting(), pod_of_rank(1).ended(42)});
  const GroupFailure failure = evaluate_failure_policy(observed, classify_objects(observed));
  EXPECT_EQ(failure.decision, Decision::kFail);
  EXPECT_EQ(failure.reason, "FailurePolicy");
  EXPECT_EQ(failure.message, "pod bert-0-1 on node-1 ended with exit code 42; failurePolicy.rules[1] fails the job")
      << "takes precedence over a removed pod";
}

// The rank whose GPU failed is the root cause of the collateral failures, and the record contains its node.
TEST(FailurePolicy, FailedDeviceRestartsAndRecordsNode) {
  const char* const words =
      R"({"rank":1,"step":7,"checkpointStep":5,"reason":"DeviceFailed","message":"host bert-0-1, cuda:3: uncorrectable ECC error"})";
  const GroupFailure failure = judged({pod_of_rank(0).ended(76).finished_at(at_second(40)),
                                       pod_of_rank(1).ended(79, words).finished_at(at_second(50))});
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_FALSE(failure.is_free);
  EXPECT_EQ(failure.reason, "DeviceFailed");
  EXPECT_EQ(failure.restart_reason, "DeviceFailed");
  EXPECT_EQ(failure.record.node, "node-1");
  EXPECT_EQ(failure.message,
            "pod bert-0-1 on node-1 ended with exit code 79: DeviceFailed: host bert-0-1, cuda:3: uncorrectable ECC "
            "error");
  const Observed free = seen(JobBuilder().phase(Phase::kRunning).rule(in(FailureAction::kRestartFree, {79})),
                             {pod_of_rank(0).ended(76), pod_of_rank(1).ended(79, words)});
  EXPECT_TRUE(evaluate_failure_policy(free, classify_objects(free)).is_free);
}

TEST(FailurePolicy, FreeRestartIgnoresMaxRestarts) {
  const Observed observed =
      seen(JobBuilder().max_restarts(0).phase(Phase::kRunning),
           {pod_of_rank(0).running(), pod_of_rank(1).running().deleting().disrupted("PreemptionByScheduler")});
  const GroupFailure failure = evaluate_failure_policy(observed, classify_objects(observed));
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_FALSE(failure.is_charged());
}

// ---- What is free --------------------------------------------------------------------------------------------------

TEST(FailurePolicy, IncompleteStartIsNotCharged) {
  const Pod late = pod_of_rank(0).ended(1).scheduled_at(at_second(-10));
  const Pod timed_out = pod_of_rank(0).ended(75);
  const Pod unschedulable = pod_of_rank(1).unschedulable("0/3 nodes are available");
  struct IncompleteRow {
    const char* name;
    std::vector<Pod> pods;
    bool is_charged;
    const char* reason;
    const char* pod;
    const char* last_error = "";
  };
  const IncompleteRow rows[] = {
      {.name = "unschedulable",
       .pods = {timed_out, unschedulable},
       .is_charged = false,
       .reason = "Unschedulable",
       .pod = "bert-0-1"},
      {.name = "a program that fails with another code when its peers do not come",
       .pods = {late, unschedulable},
       .is_charged = false,
       .reason = "Unschedulable",
       .pod = "bert-0-1"},
      {.name = "image pull",
       .pods = {timed_out, pod_of_rank(1).waiting("ErrImagePull", "not found")},
       .is_charged = false,
       .reason = "ImagePullBackOff",
       .pod = "bert-0-1"},
      {.name = "slow pull or volume attach",
       .pods = {timed_out, pod_of_rank(1).waiting("ContainerCreating")},
       .is_charged = false,
       .reason = "PodsStarting",
       .pod = "bert-0-1"},
      {.name = "the same, another code after a long time",
       .pods = {late, pod_of_rank(1).waiting("ContainerCreating")},
       .is_charged = false,
       .reason = "PodsStarting",
       .pod = "bert-0-1"},
      {.name = "quota",
       .pods = {timed_out},
       .is_charged = false,
       .reason = "CreateRefused",
       .pod = "",
       .last_error = "exceeded quota"},
      {.name = "a peer lost another one that had started",
       .pods = {pod_of_rank(0).ended(76).finished_at(at_second(10)), unschedulable},
       .is_charged = false,
       .reason = "Unschedulable",
       .pod = "bert-0-1"},
      {.name = "deleted",
       .pods = {pod_of_rank(0).running().deleting(), unschedulable},
       .is_charged = false,
       .reason = "PodDeleted",
       .pod = "bert-0-0"},
      {.name = "a program that fails immediately, while others start",
       .pods = {pod_of_rank(0).ended(1).scheduled_at(at_second(50)), pod_of_rank(1).waiting("ContainerCreating")},
       .is_charged = true,
       .reason = "PodFailed",
       .pod = "bert-0-0"},
      {.name = "all have started",
       .pods = {timed_out, pod_of_rank(1).running()},
       .is_charged = true,
       .reason = "Interrupted",
       .pod = "bert-0-0"},
  };
  for (const IncompleteRow& row : rows) {
    for (const Phase phase : {Phase::kPending, Phase::kRestarting}) {
      Observed observed = seen(JobBuilder().max_restarts(row.is_charged ? 2 : 0).phase(phase), row.pods);
      observed.last_error = row.last_error;
      const GroupFailure failure = evaluate_failure_policy(observed, classify_objects(observed));
      EXPECT_EQ(failure.decision, Decision::kRestart) << row.name;
      EXPECT_EQ(failure.is_charged(), row.is_charged) << row.name;
      EXPECT_EQ(failure.reason, row.reason) << row.name;
      EXPECT_EQ(failure.record.pod, row.pod) << row.name << ": " << failure.message;
    }
  }
  const api::FailureRule charged = in(FailureAction::kRestart, {75});
  const Observed by_rule = seen(JobBuilder().rule(charged).phase(Phase::kPending), {timed_out, unschedulable});
  EXPECT_TRUE(evaluate_failure_policy(by_rule, classify_objects(by_rule)).is_charged()) << "a rule decides first";
}

TEST(FailurePolicy, RejectedPodIsFree) {
  const auto rejected = [](const std::string& reason, bool has_started) {
    Pod one = pod_of_rank(1).scheduled();
    one.phase = PodPhase::kFailed;
    one.reason = reason;
    one.started = has_started;
    return one;
  };
  for (const char* reason : {"UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfnvidia.com/gpu",
                             "NodeAffinity", "TopologyAffinityError", "NodeShutdown", "SomethingNew", ""}) {
    const GroupFailure failure = judged({pod_of_rank(0).running(), rejected(reason, false)}, Phase::kRunning, 2);
    EXPECT_EQ(failure.decision, Decision::kRestart) << reason;
    EXPECT_FALSE(failure.is_charged()) << reason;
    EXPECT_EQ(failure.restart_reason, "PodRejected") << reason;
    EXPECT_EQ(failure.record.exit_code, std::nullopt) << reason;
  }
  EXPECT_FALSE(judged({pod_of_rank(0).running(), rejected("UnexpectedAdmissionError", true)}).is_charged())
      << "after a restart of the kubelet, also of a pod that ran";
  EXPECT_TRUE(judged({pod_of_rank(0).running(), rejected("DeadlineExceeded", true)}).is_charged());
}

TEST(FailurePolicy, InitContainerFailureIsRecorded) {
  const auto with_code = [](int code) {
    Pod one = pod_of_rank(1).scheduled();
    one.phase = PodPhase::kFailed;
    one.started = true;
    one.trainer = Termination{code, "Error", "no such bucket", at_second(59), "fetch"};
    return one;
  };
  const GroupFailure failure = judged({pod_of_rank(0).running(), with_code(3)});
  EXPECT_EQ(failure.decision, Decision::kRestart);
  EXPECT_TRUE(failure.is_charged());
  EXPECT_EQ(failure.record.container, "fetch");
  EXPECT_EQ(failure.record.exit_code, 3);
  EXPECT_EQ(failure.record.message,
            "init container fetch of pod bert-0-1 on node-1 ended with exit code 3: no such bucket");
  EXPECT_EQ(judged({pod_of_rank(0).running(), with_code(78)}).decision, Decision::kRestart);
  const auto by_rule = [&](FailureAction action) {
    const Observed observed =
        seen(JobBuilder().rule(in(action, {3})).phase(Phase::kRunning), {pod_of_rank(0).running(), with_code(3)});
    return evaluate_failure_policy(observed, classify_objects(observed));
  };
  EXPECT_EQ(by_rule(FailureAction::kFail).decision, Decision::kFail);
  EXPECT_FALSE(by_rule(FailureAction::kRestartFree).is_charged());
  EXPECT_EQ(by_rule(FailureAction::kIgnore).decision, Decision::kRestart) << "the trainer has done no work";
}

TEST(FailurePolicy, RestartReasonsAreListed) {
  for (const Pod& one : std::vector<Pod>{
           pod_of_rank(1).ended(1), pod_of_rank(1).ended(137, "", "OOMKilled"), pod_of_rank(1).evicted(),
           pod_of_rank(1).ended(79, to_json(TerminationMessage{.rank = 1, .reason = "DeviceFailed", .message = ""})),
           pod_of_rank(1).running().deleting(), pod_of_rank(1).ended(75), pod_of_rank(1).ended(76),
           pod_of_rank(1).running().deleting().disrupted("X")}) {
    const auto all = restart_reasons();
    const GroupFailure failure = judged({pod_of_rank(0).ended(0), one});
    EXPECT_NE(std::find(all.begin(), all.end(), failure.restart_reason), all.end()) << failure.restart_reason;
  }
  EXPECT_EQ(judged({pod_of_rank(0).ended(0)}).restart_reason, "PodLost");
}

}  // namespace
}  // namespace oarlock::test
