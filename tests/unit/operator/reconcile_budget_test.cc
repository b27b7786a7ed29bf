// The budget of restarts in a reconciliation: what is charged after progress, and when a job fails for it.
#include <fmt/format.h>

#include "operator/core/failure.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::HasSubstr;

// A group of two whose rank 0 has reported this step in the current attempt, and whose other rank fails.
Observed failed_at_step(Job job, int64_t step, int64_t checkpoint_step = -1) {
  const int attempt = job.status.attempt;
  Observed observed = seen(job, {pod(attempt, 0).running(), pod(attempt, 1).ended(137)});
  observed.job.status.phase = Phase::kRunning;
  RankStatus& rank = observed.progress.emplace();
  rank.attempt = attempt;
  rank.step = step;
  rank.checkpoint_step = checkpoint_step;
  return observed;
}

api::Status status_after_failures(Job job, const std::vector<int64_t>& steps) {
  for (const int64_t step : steps) {
    const Observed observed = failed_at_step(job, step, step - 1);
    job.status = status_after(observed, reconcile(observed));
    if (is_terminal(job.status.phase)) break;
  }
  return job.status;
}

TEST(ReconcileBudget, RestartAfterProgressIsNotCharged) {
  const Job job = JobBuilder().max_restarts(1).backoff_seconds(10).phase(Phase::kRunning);
  const api::Status status = status_after_failures(job, {10, 20, 30, 40, 50, 60, 70, 80, 90, 100});
  EXPECT_EQ(status.phase, Phase::kRestarting);
  EXPECT_EQ(status.restarts.total, 10);
  EXPECT_EQ(status.restarts.charged, 0);
  EXPECT_EQ(status.restarts.after_progress->count, 10);
  EXPECT_EQ(status.restarts.after_progress->step, 100);
  EXPECT_EQ(status.attempts.back().step, 100);
  const Observed first = failed_at_step(job, 110);
  const Plan plan = reconcile(first);
  EXPECT_THAT(only<EmitEvent>(plan).at(0).message, HasSubstr("a restart after progress as attempt 1: pod bert-0-1"));
  expect_settled(first, plan);
}

// Otherwise, 10,000 restarts after progress would have no delay.
TEST(ReconcileBudget, RestartsAfterProgressBackOff) {
  Job job = JobBuilder().max_restarts(1).backoff_seconds(10).phase(Phase::kRunning);
  job.status = status_after_failures(job, {10, 20});
  EXPECT_EQ(restart_delay(job, job.status), std::chrono::seconds(10));
  job.status = status_after_failures(job, {30});
  EXPECT_EQ(restart_delay(job, job.status), std::chrono::seconds(20));
}

TEST(ReconcileBudget, FailuresWithoutProgressFailTheJobWithTheReason) {
  const Job job = JobBuilder().max_restarts(100).max_failures_at_step(3).phase(Phase::kRunning);
  EXPECT_EQ(status_after_failures(job, {1200, 1200}).phase, Phase::kRestarting);
  const api::Status failed = status_after_failures(job, {1200, 1200, 1200, 1200});
  EXPECT_EQ(failed.phase, Phase::kFailed);
  EXPECT_EQ(failed.restarts.total, 2);
  EXPECT_EQ(failed.restarts.charged, 1);
  EXPECT_EQ(failed.restarts.after_progress->failures, 3);
  EXPECT_EQ(condition_of(failed, Phase::kFailed).reason, "NoProgress");
  EXPECT_THAT(condition_of(failed, Phase::kFailed).message,
              HasSubstr("; failed 3 times without progress beyond step 1200"));
}

TEST(ReconcileBudget, TotalLimitFailsAJobThatCrashesAfterEachStep) {
  const Job job = JobBuilder().max_restarts(1).max_total_restarts(3).phase(Phase::kRunning);
  const api::Status failed = status_after_failures(job, {1, 2, 3, 4});
  EXPECT_EQ(failed.phase, Phase::kFailed);
  EXPECT_EQ(failed.restarts.after_progress->count, 3);
  EXPECT_EQ(condition_of(failed, Phase::kFailed).reason, "MaxRestartsExceeded");
}

TEST(ReconcileBudget, DisruptionsChangeNothingInTheBudget) {
  Observed observed = failed_at_step(JobBuilder().max_restarts(0).phase(Phase::kRunning), 10);
  observed.pods[1] = pod(0, 1).ended(143).disrupted("PreemptionByScheduler");
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.phase, Phase::kRestarting);
  EXPECT_EQ(*next.restarts.after_progress, api::AfterProgress{});
  observed = failed_at_step(JobBuilder().max_restarts(0).status(next).phase(Phase::kRunning), 5);
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kFailed) << "maxTotalRestarts is 0";
  observed.job.spec.failure_policy.max_total_restarts = 1;
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.after_progress->count, 1);
}

api::AfterProgress progress_after(const Observed& observed) {
  return status_after(observed, reconcile(observed)).restarts.after_progress.value_or(api::AfterProgress{});
}

// The last report may precede the end, and rank 0 may have no message yet.
TEST(ReconcileBudget, ReadsProgressFromTheTerminationMessagesOfAllPods) {
  const Job job = JobBuilder().max_restarts(0).max_total_restarts(1).phase(Phase::kRunning);
  const std::string message = R"({"rank":0,"step":7,"checkpointStep":5,"reason":"Failed","message":"m"})";
  for (const Observed& observed : {seen(job, {pod(0, 0).ended(1, message), pod(0, 1).running()}),
                                   seen(job, {pod(0, 0).running(), pod(0, 1).ended(1, message)})}) {
    EXPECT_EQ(progress_after(observed),
              (api::AfterProgress{.count = 1, .step = 7, .checkpoint_step = 5, .failures = 1}));
  }
}

// Processes that start again in their pods begin at an earlier step.
TEST(ReconcileBudget, ProgressIsTheHighestStep) {
  Job job = JobBuilder().max_restarts(1).phase(Phase::kRunning);
  Observed observed = failed_at_step(job, 100, 90);
  observed.pods = {pod(0, 0).running(), pod(0, 1).running()};
  for (const int64_t step : {100, 0}) {
    observed.progress->step = step;
    observed.progress->checkpoint_step = step - 10;
    observed.job.status = status_after(observed, reconcile(observed));
    EXPECT_EQ(observed.job.status.progress->step, step);
    EXPECT_EQ(*observed.job.status.highest_progress, (api::HighestProgress{.step = 100, .checkpoint_step = 90}));
  }
  observed.pods[1] = pod(0, 1).ended(137);
  EXPECT_EQ(progress_after(observed),
            (api::AfterProgress{.count = 1, .step = 100, .checkpoint_step = 90, .failures = 1}));
}

// The status keeps the checkpoint in `progress` while the next attempt starts.
TEST(ReconcileBudget, IgnoresCheckpointOfAnEarlierAttempt) {
  Job job = JobBuilder().max_restarts(1).phase(Phase::kRunning);
  job.status = status_after_failures(job, {100});
  job.status.phase = Phase::kRunning;
  job.status.progress->checkpoint_step = 120;
  const Observed observed =
      seen(job, {pod(1, 0).ended(1, R"({"rank":0,"step":3,"checkpointStep":-1,"reason":"Failed","message":"m"})"),
                 pod(1, 1).running()});
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.charged, 1);
  EXPECT_EQ(progress_after(observed).checkpoint_step, 99);
}

// The status is written less often than rank 0 reports.
TEST(ReconcileBudget, ProgressBetweenTwoWritesIsNotLost) {
  Job job = JobBuilder().max_restarts(0).max_total_restarts(5).phase(Phase::kRunning);
  job.status = status_after_failures(job, {95});
  Observed observed = failed_at_step(job, 85, 80);
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kFailed);
  observed.highest_reported = {.step = 200, .checkpoint_step = 94};
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRestarting);
  EXPECT_EQ(progress_after(observed).step, 200);
}

// A preemption costs nothing, and takes nothing of what was reached before it.
TEST(ReconcileBudget, ProgressBeforeADisruptionCounts) {
  Job job = JobBuilder().max_restarts(1).max_failures_at_step(2).phase(Phase::kRunning);
  for (int64_t step = 1000; step < 5000; step += 1000) {
    Observed observed = failed_at_step(job, 1);
    const std::string message =
        fmt::format(R"({{"rank":1,"step":{},"checkpointStep":-1,"reason":"Interrupted"}})", step);
    observed.pods[1] = pod(job.status.attempt, 1).ended(143, message).disrupted("PreemptionByScheduler");
    job.status = status_after(observed, reconcile(observed));
    observed = failed_at_step(job, 0);  // at its start, before it has read the checkpoint
    job.status = status_after(observed, reconcile(observed));
    EXPECT_EQ(job.status.phase, Phase::kRestarting) << condition_of(job.status, job.status.phase).message;
  }
  EXPECT_EQ(job.status.restarts.charged, 0);
  EXPECT_EQ(job.status.restarts.after_progress->count, 4);
}

TEST(ReconcileBudget, ResumeBeginsProgressAgain) {
  Job job = JobBuilder().max_restarts(1).phase(Phase::kRunning);
  job.status = status_after_failures(job, {100, 200});
  job.status.phase = Phase::kSuspended;
  const Observed resumed = seen(job, {});
  job.status = status_after(resumed, reconcile(resumed));
  EXPECT_EQ(job.status.phase, Phase::kPending);
  EXPECT_EQ(*job.status.restarts.after_progress, api::AfterProgress{.count = 2});
  EXPECT_EQ(status_after_failures(job, {10}).restarts.after_progress->count, 3);
}

}  // namespace
}  // namespace oarlock::test
