// Consequences of a failure: a charged or free group restart, its backoff, or the failure of the job.
#include <limits>

#include "api/rules.h"
#include "operator/core/failure.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReconcileRestart, RestartsTheWholeGroup) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(137)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kProgress);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 1", "EmitEvent Restarting", "DeletePod bert-0-0",
                                       "CreatePod bert-1-0", "CreatePod bert-1-1"))
      << "the status is patched first, and the failed pod is kept for its log";
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.restarts, (api::Restarts{1, 1, {{"PodFailed", 1}}, api::AfterProgress{}}));
  EXPECT_EQ(next.nodes, (api::NodeCounts{2, 0, 0, 0, 0, "0/2"}));
  ASSERT_EQ(next.attempts.size(), 1U);
  EXPECT_EQ(next.attempts[0].pod, "bert-0-1");
  EXPECT_EQ(next.attempts[0].exit_code, 137);
  EXPECT_EQ(only<DeletePod>(plan).at(0).uid, "uid-of-bert-0-0");
  EXPECT_THAT(only<EmitEvent>(plan).at(0).message, HasSubstr("restart 1 of 3 as attempt 1: pod bert-0-1"));
  EXPECT_EQ(only<EmitEvent>(plan).at(0).pod, "bert-0-1");
  expect_settled(observed, plan);
}

TEST(ReconcileRestart, CountsDoNotOverflow) {
  constexpr int kLargest = std::numeric_limits<int>::max();
  Job job = JobBuilder()
                .phase(Phase::kRunning)
                .rule({.action = api::FailureAction::kRestartFree,
                       .on_exit_codes = api::ExitCodeMatch{.values = {1}},
                       .on_pod_reasons = {},
                       .on_pod_conditions = {}});
  job.status.restarts = {kLargest, kLargest, {{"PodFailed", kLargest}}, api::AfterProgress{}};
  const Observed observed = seen(job, {pod(0, 0).running(), pod(0, 1).ended(1)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts, job.status.restarts);
}

// A client that may edit the status, or a pod of that name, can set the number.
TEST(ReconcileRestart, LastAttemptIsNotExceeded) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRunning, api::rules::kMaxAttempt),
           {pod(api::rules::kMaxAttempt, 0).running(), pod(api::rules::kMaxAttempt, 1).ended(137)});
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.phase, Phase::kFailed);
  EXPECT_EQ(next.attempt, api::rules::kMaxAttempt);
  // A label of a metric: not a word of the tenant.
  const auto failed =
      std::ranges::find(next.conditions, std::string("Failed"), [](const auto& condition) { return condition.type; });
  ASSERT_NE(failed, next.conditions.end());
  EXPECT_EQ(failed->reason, "MaxRestartsExceeded");
}

// The leader's clock was ahead when it recorded the times.
TEST(ReconcileRestart, TimesInTheFutureDelayNothing) {
  Job job = JobBuilder().phase(Phase::kRestarting, 2);
  api::AttemptRecord record;
  record.start_time = record.end_time = seen(job).now + std::chrono::hours(24 * 365);
  job.status.attempts = {record, record};
  EXPECT_THAT(names(reconcile(seen(job))), testing::Contains("CreatePod bert-2-0"));
}

TEST(ReconcileRestart, ContinuesInterruptedRestartWithoutCountingAgain) {
  const Observed before = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(137)});
  Observed observed = after(before, reconcile(before));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 1", "DeletePod bert-0-0", "CreatePod bert-1-0",
                                       "CreatePod bert-1-1"));
  EXPECT_EQ(status_after(observed, plan).restarts.total, 1);

  observed.pods.emplace_back(pod(1, 0));
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Restarting 1", "DeletePod bert-0-0", "CreatePod bert-1-1"));
}

TEST(ReconcileRestart, PodOnDeadNodeDoesNotDelayNextAttempt) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRestarting, 1),
                                 {pod(0, 0).running().deleting(), pod(1, 0).running(), pod(1, 1).running()});
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Running 1", "EmitEvent Running"));
}

TEST(ReconcileRestart, ConfirmsLostPodBeforeRestart) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running()});
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("ConfirmPodAbsent bert-0-1", "PatchStatus Restarting 1",
                                                      "EmitEvent Restarting", "DeletePod bert-0-0"))
      << "the pod may have been stopped, and its peer may save";
}

TEST(ReconcileRestart, KeepsEndedPodsOfPreviousAttemptOnly) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRestarting, 2),
           {pod(0, 0).ended(1), pod(1, 0).ended(1), pod(1, 1).ended(76), pod(2, 0).running(), pod(2, 1).running()});
  const std::vector<DeletePod> deleted = only<DeletePod>(reconcile(observed));
  ASSERT_EQ(deleted.size(), 1U);
  EXPECT_EQ(deleted[0].name, "bert-0-0");
}

// A quota on count/pods counts ended pods; one on pods, or on their resources, does not.
TEST(ReconcileRestart, QuotaThatCountsEndedPodsDeletesThem) {
  constexpr char kCounted[] =
      "pods \"bert-1-1\" is forbidden: exceeded quota: q, requested: count/pods=1, used: count/pods=3";
  constexpr char kOther[] = "pods \"bert-1-1\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3";
  struct Row {
    const char* name;
    std::string error;
    std::vector<Pod> pods;
    int seconds = 30;  // since the start of the attempt
    std::vector<std::string> deleted{};
    bool is_announced = true;
  };
  const Pod stopping = pod(0, 1).running().deleting();
  const Pod lost = pod(0, 1).running().deleting().unreachable();
  const std::vector<Row> rows = {
      {.name = "ended pods",
       .error = kCounted,
       .pods = {pod(0, 0).ended(1), pod(0, 1).ended(76), pod(1, 0)},
       .deleted = {"bert-0-0", "bert-0-1"}},
      {.name = "a quota that does not count them",
       .error = kOther,
       .pods = {pod(0, 0).ended(1), pod(1, 0)},
       .is_announced = false},
      {.name = "the first seconds", .error = kCounted, .pods = {pod(0, 0).ended(1), pod(1, 0)}, .seconds = 29},
      {.name = "another pod is about to end", .error = kCounted, .pods = {pod(0, 0).ended(1), stopping, pod(1, 0)}},
      {.name = "a pod on a dead node",
       .error = kCounted,
       .pods = {pod(0, 0).ended(1), lost, pod(1, 0)},
       .deleted = {"bert-0-0"}},
      {.name = "only pods of this attempt", .error = kCounted, .pods = {pod(1, 0).ended(0)}, .is_announced = false},
      {.name = "no pod is missing",
       .error = kCounted,
       .pods = {pod(0, 0).ended(1), pod(1, 0), pod(1, 1)},
       .is_announced = false},
  };
  for (const Row& row : rows) {
    Job job = JobBuilder().phase(Phase::kRestarting, 1);
    job.status.attempt_start_time = at_second(60 - row.seconds);
    Observed observed = seen(job, row.pods);
    observed.last_error = row.error;
    const Plan plan = reconcile(observed);
    std::vector<std::string> deleted;
    for (const DeletePod& one : only<DeletePod>(plan)) deleted.push_back(one.name);
    EXPECT_EQ(deleted, row.deleted) << row.name;
    const bool has_event = std::ranges::any_of(only<EmitEvent>(plan), [](const EmitEvent& one) {
      return one.reason == "LogsNotKept" && one.type == EmitEvent::Type::kWarning;
    });
    EXPECT_EQ(has_event, !row.deleted.empty()) << row.name;
    const std::string message = condition_of(status_after(observed, plan), Phase::kRestarting).message;
    EXPECT_EQ(message.find("which this quota counts, are deleted 30 s after") != std::string::npos, row.is_announced)
        << row.name << ": " << message;
    if (plan.actions.empty()) continue;
    expect_settled(observed, plan);
  }
}

TEST(ReconcileRestart, DoesNotDeletePodThatIsTerminating) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).trainer_ended(1)});
  const Plan plan = reconcile(observed);
  ASSERT_EQ(only<DeletePod>(plan).size(), 1U);
  EXPECT_EQ(only<DeletePod>(plan).at(0).name, "bert-0-0");
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(10));
  observed = after(observed, plan);
  observed.pods = {pod(0, 1).trainer_ended(1), pod(1, 0).running(), pod(1, 1).running()};
  observed.now = at_second(66);
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(4));
  observed.now = at_second(70);
  EXPECT_EQ(only<DeletePod>(reconcile(observed)).at(0).name, "bert-0-1")
      << "a sidecar continues to run and occupies the node";
}

TEST(ReconcileRestart, FailsAfterMaxRestarts) {
  const Observed observed = seen(JobBuilder().max_restarts(1).phase(Phase::kRunning, 1).restarts(1),
                                 {pod(1, 0).running(), pod(1, 1).ended(1)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kComplete);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Failed 1", "EmitEvent Failed", "DeletePod bert-1-0"));
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.restarts.total, 1);
  EXPECT_EQ(next.completion_time, at_second(60));
  EXPECT_EQ(condition_of(next, Phase::kFailed).reason, "MaxRestartsExceeded");
  EXPECT_EQ(only<DeletePod>(plan).at(0).resource_version, "200") << "a pod that terminates concurrently keeps its log";
}

TEST(ReconcileRestart, FailsImmediatelyOnPermanentFailure) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRestarting), {pod(0, 0).running(), pod(0, 1).ended(78)});
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Failed 0", "EmitEvent Failed", "DeletePod bert-0-0"));
}

TEST(ReconcileRestart, IgnoredExitCodeCountsAsDone) {
  const api::FailureRule ignore{
      api::FailureAction::kIgnore, api::ExitCodeMatch{api::ExitCodeOperator::kIn, {3}}, {}, {}};
  Observed observed = seen(JobBuilder().rule(ignore).phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(3)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  observed.pods[0] = pod(0, 0).ended(0);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).phase, Phase::kComplete);
  EXPECT_THAT(plan.reason, HasSubstr("all 2 pods ended, 1 of them with an exit code that failurePolicy.rules ignores"));
}

// ---- Finished ranks ----------------------------------------------------------------------------------------------

TEST(ReconcileRestart, FinishedRankStaysFinishedWithoutPod) {
  Observed observed = seen(JobBuilder().nodes(3).phase(Phase::kRunning),
                           {pod(0, 0).running(), pod(0, 1).ended(0), pod(0, 2).running()});
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.finished_ranks, (api::FinishedRanks{0, "1"}));
  EXPECT_EQ(observed.job.status.nodes, (api::NodeCounts{3, 3, 2, 1, 0, "2/3"}));

  observed.pods = {pod(0, 0).running(), pod(0, 2).running()};
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0")) << "only the number of scheduled pods changes";
  observed = after(observed, plan);
  EXPECT_EQ(observed.job.status.nodes, (api::NodeCounts{3, 2, 2, 1, 0, "2/3"}));
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());

  observed.pods = {pod(0, 0).ended(0), pod(0, 2).running()};
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.finished_ranks, (api::FinishedRanks{0, "0-1"}));
  observed.pods = {pod(0, 2).ended(0)};
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Complete 0", "EmitEvent Completed", "DeleteService bert"));
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.restarts.total, 0);
  EXPECT_EQ(observed.job.status.nodes.succeeded, 3);
}

TEST(ReconcileRestart, FinishedRankIsNotRecreatedWhilePending) {
  const JobBuilder pending = JobBuilder().nodes(3).phase(Phase::kPending).finished(0, "0");
  Observed observed = seen(pending, {pod(0, 1).running()});
  EXPECT_THAT(only<CreatePod>(reconcile(observed)), ::testing::SizeIs(1)) << "only of rank 2";
  observed.pods.emplace_back(pod(0, 2).running());
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning) << "all have started";
}

TEST(ReconcileRestart, NewAttemptClearsFinishedRanks) {
  const JobBuilder job = JobBuilder().phase(Phase::kRunning).finished(0, "0");
  // The pod exited with 0, was recorded as finished, and was then deleted. The clocks of its node and of the API server
  // differ.
  EXPECT_THAT(only<CreatePod>(reconcile(seen(job, {pod(0, 0).trainer_ended(0).deleting(), pod(0, 1).running()}))),
              IsEmpty());
  const Observed observed = seen(job, {pod(0, 1).ended(137)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 1", "EmitEvent Restarting", "CreatePod bert-1-0",
                                       "CreatePod bert-1-1"));
  EXPECT_EQ(status_after(observed, plan).finished_ranks, std::nullopt);
  EXPECT_EQ(only<EmitEvent>(plan).at(0).pod, "bert-0-1") << "the finished rank without a pod is not the root cause";
}

TEST(ReconcileRestart, RankWithIgnoredExitCodeIsFinished) {
  const api::FailureRule ignore{
      api::FailureAction::kIgnore, api::ExitCodeMatch{api::ExitCodeOperator::kIn, {3}}, {}, {}};
  Observed observed = seen(JobBuilder().rule(ignore).phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(3)});
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.nodes.failed, 1);
  observed.pods = {pod(0, 0).ended(0)};
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
}

// ---- Exit code 0 of a stopped pod ------------------------------------------------------------------------

TEST(ReconcileRestart, StoppedPodWithExitCodeZeroIsRemoved) {
  const JobBuilder job = JobBuilder().nodes(1).phase(Phase::kRunning);
  const Observed deleted = seen(job, {pod(0, 0).trainer_ended(0).deleting()});
  const api::Status after_deletion = status_after(deleted, reconcile(deleted));
  EXPECT_EQ(after_deletion.phase, Phase::kRestarting);
  EXPECT_EQ(after_deletion.restarts, (api::Restarts{1, 1, {{"PodDeleted", 1}}, api::AfterProgress{}}));
  const Observed drained = seen(job, {pod(0, 0).trainer_ended(0).deleting().disrupted("EvictionByEvictionAPI")});
  EXPECT_EQ(status_after(drained, reconcile(drained)).restarts,
            (api::Restarts{1, 0, {{"Disrupted", 1}}, api::AfterProgress{}}));
  // NotIn matches failures only, and exit code 0 is not a failure.
  const api::FailureRule fail{
      api::FailureAction::kFail, api::ExitCodeMatch{api::ExitCodeOperator::kNotIn, {1}}, {}, {}};
  const Observed with_rule = seen(JobBuilder(job).rule(fail), deleted.pods);
  EXPECT_EQ(status_after(with_rule, reconcile(with_rule)).phase, Phase::kRestarting);
}

TEST(ReconcileRestart, DisruptionRestartsWithoutCharge) {
  const Observed observed =
      seen(JobBuilder().max_restarts(0).phase(Phase::kRunning),
           {pod(0, 0).running(), pod(0, 1).running().deleting().disrupted("PreemptionByScheduler")});
  const Plan plan = reconcile(observed);
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.phase, Phase::kRestarting);
  EXPECT_EQ(next.restarts, (api::Restarts{1, 0, {{"Disrupted", 1}}, api::AfterProgress{}}));
  EXPECT_THAT(only<EmitEvent>(plan).at(0).message, HasSubstr("a restart that does not count as attempt 1"));
}

// ---- Handover from stopped pods ------------------------------------------------------------------------------------

TEST(ReconcileRestart, WaitsForStoppedPodsThatMaySave) {
  struct Row {
    const char* name;
    std::vector<Pod> pods;
    bool waits;
  };
  const SystemTime grace_end = at_second(80);
  const Row rows[] = {
      {.name = "deleted", .pods = {pod(0, 0).ended(75), pod(0, 1).running().deleting_until(grace_end)}, .waits = true},
      {.name = "drained",
       .pods = {pod(0, 0).ended(75), pod(0, 1).running().deleting_until(grace_end).disrupted("EvictionByEvictionAPI")},
       .waits = true},
      {.name = "evicted, and the peer saves", .pods = {pod(0, 0).running(), pod(0, 1).evicted()}, .waits = true},
      {.name = "interrupted, and the peer saves", .pods = {pod(0, 0).running(), pod(0, 1).ended(75)}, .waits = true},
      {.name = "gone, and the peer saves", .pods = {pod(0, 0).running()}, .waits = true},
      {.name = "crashed", .pods = {pod(0, 0).running(), pod(0, 1).ended(1)}, .waits = false},
      {.name = "crashed, and the peer is deleted later",
       .pods = {pod(0, 0).trainer_ended(76).finished_at(at_second(40)), pod(0, 1).ended(1)},
       .waits = false},
      {.name = "a trainer that has ended has saved",
       .pods = {pod(0, 0).ended(75), pod(0, 1).trainer_ended(143).deleting_until(grace_end)},
       .waits = false},
      {.name = "a pod that never ran", .pods = {pod(0, 0).scheduled(), pod(0, 1).ended(75)}, .waits = false},
      {.name = "the node does not respond",
       .pods = {pod(0, 0).ended(75), pod(0, 1).running().unreachable().deleting_until(grace_end)},
       .waits = false},
      {.name = "the grace period has passed",
       .pods = {pod(0, 0).ended(75), pod(0, 1).running().deleting_until(at_second(50))},
       .waits = false},
      {.name = "the API server's clock is wrong",
       .pods = {pod(0, 0).ended(75), pod(0, 1).running().deleting_until(at_second(7200))},
       .waits = false},
  };
  for (const Row& row : rows) {
    const Observed observed = seen(JobBuilder().phase(Phase::kRunning), row.pods);
    const Plan plan = reconcile(observed);
    EXPECT_EQ(status_after(observed, plan).phase, Phase::kRestarting) << row.name;
    EXPECT_EQ(only<CreatePod>(plan).empty(), row.waits) << row.name;
    EXPECT_EQ(status_after(observed, plan).attempts.back().stopped, std::string(row.name).find("crash") != 0)
        << row.name;
    if (row.waits) {
      ASSERT_TRUE(plan.requeue_after) << row.name;
      EXPECT_LE(*plan.requeue_after, std::chrono::seconds(40)) << row.name << ": grace period and margin";
    }
  }
}

TEST(ReconcileRestart, HandoverEndsWithThePodsOrTheirGracePeriod) {
  Observed observed =
      seen(JobBuilder().nodes(1).phase(Phase::kRunning), {pod(0, 0).running().deleting_until(at_second(80))});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(30)) << "10 s after the grace period";
  expect_settled(observed, plan);
  observed = after(observed, plan);
  EXPECT_THAT(condition_of(observed.job.status, Phase::kRestarting).message,
              HasSubstr("waiting for 1 pod of earlier attempts to save and end within the grace period"));
  observed.now = at_second(89);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1));
  observed.now = at_second(90);
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Restarting 1", "CreatePod bert-1-0"));
  observed.now = at_second(70);
  observed.pods.clear();
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Restarting 1", "CreatePod bert-1-0"));
}

// Attempts 0 and 1 failed within a second. This is attempt 2, whose failure was observed at second 59.
Observed failed_twice(int backoff_seconds) {
  Job job = JobBuilder().backoff_seconds(backoff_seconds).phase(Phase::kRestarting, 2).restarts(2);
  job.status.attempts.resize(2);
  for (int i = 0; i < 2; ++i) {
    job.status.attempts[static_cast<size_t>(i)].attempt = i;
    job.status.attempts[static_cast<size_t>(i)].reason = "PodFailed";
    job.status.attempts[static_cast<size_t>(i)].message = "m";
    job.status.attempts[static_cast<size_t>(i)].start_time = at_second(55 + 2 * i);
    job.status.attempts[static_cast<size_t>(i)].end_time = at_second(57 + 2 * i);
  }
  return seen(job, {pod(1, 0).running()});
}

TEST(ReconcileRestart, RepeatedFailuresBackOff) {
  Observed observed = failed_twice(10);
  Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "DeletePod bert-1-0")) << "peers end immediately";
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(9));
  observed = after(observed, plan);
  EXPECT_THAT(condition_of(observed.job.status, Phase::kRestarting).message,
              HasSubstr("the next start is at " + to_rfc3339(at_second(69))));
  observed.pods.clear();
  observed.now = at_second(68);
  plan = reconcile(observed);
  EXPECT_THAT(plan.actions, IsEmpty()) << "nothing is written during the backoff";
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(1));
  observed.now = at_second(69);
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "CreatePod bert-2-0", "CreatePod bert-2-1"));
  expect_settled(observed, plan);
  EXPECT_EQ(only<CreatePod>(reconcile(failed_twice(0))).size(), 2U);
}

}  // namespace
}  // namespace oarlock::test
