// The recoveries that rank 0 reports in /statusz, in the status and in events.
#include <limits>

#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobBuilder training() { return JobBuilder().nodes(2).phase(Phase::kRunning); }

Observed reporting(const Job& job, int64_t recoveries, double in_seconds) {
  Observed observed = seen(job, {pod(0, 0).running(), pod(0, 1).running()});
  observed.progress = RankStatus{.attempt = 0,
                                 .phase = "train",
                                 .step = 7,
                                 .loss = {},
                                 .updated_at = "",
                                 .recoveries = recoveries,
                                 .recovery_seconds = in_seconds,
                                 .recovered_ranks = "1",
                                 .recovery_reason = "rank 1 ended with exit code 137"};
  return observed;
}

TEST(ReconcileRecoveries, ReportsRecoveriesOfRankZero) {
  Observed observed = reporting(training(), 2, 0.75);
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0", "EmitEvent Recovered"));
  EXPECT_EQ(only<EmitEvent>(plan).at(0).message,
            "rank 1 was replaced while the others kept their state; 2 recoveries, 0 steps lost, 0.75 s: rank 1 ended "
            "with exit code 137");
  observed = after(observed, plan);
  EXPECT_EQ(observed.job.status.recoveries->total, 2);
  EXPECT_EQ(observed.job.status.recoveries->seconds, 0.75);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());

  const Observed third = reporting(observed.job, 3, 1.25);
  const api::Status next = status_after(third, reconcile(third));
  EXPECT_EQ(next.recoveries->total, 3);
  EXPECT_EQ(next.recoveries->seconds, 1.25);
}

TEST(ReconcileRecoveries, NamesTheRanks) {
  const std::vector<std::pair<std::string, std::string>> rows = {{"1", "rank 1 was replaced while "},
                                                                 {"1, 3", "ranks 1, 3 were replaced while "},
                                                                 {"", "ranks were replaced while "}};
  for (const auto& [ranks, beginning] : rows) {
    Observed observed = reporting(training(), 1, 0.5);
    observed.progress->recovered_ranks = ranks;
    EXPECT_THAT(only<EmitEvent>(reconcile(observed)).at(0).message, ::testing::StartsWith(beginning));
  }
}

TEST(ReconcileRecoveries, ReportsRecoveriesBeforeAFailure) {
  const auto events = [](const Job& job, const Pod& second) {
    Observed observed = reporting(job, 1, 0.5);
    observed.pods[1] = second;
    std::vector<std::string> reasons;
    for (const EmitEvent& event : only<EmitEvent>(reconcile(observed))) reasons.push_back(event.reason);
    return reasons;
  };
  const Job by_rank = training().restart_scope(api::RestartScope::kRank);
  EXPECT_THAT(events(by_rank, pod(0, 1).running().deleting()), ElementsAre("Recovered", "ReplacingPod"));
  EXPECT_THAT(events(by_rank, pod(0, 1).ended(1)), ElementsAre("Recovered", "Restarting"));
  EXPECT_THAT(events(by_rank, pod(0, 1).ended(78)), ElementsAre("Failed", "Recovered"));
}

TEST(ReconcileRecoveries, AddsTheRecoveriesOfTheNextAttempt) {
  Job job = training();
  job.status.recoveries = api::Recoveries{.total = 4,
                                          .seconds = 2,
                                          .attempt = 0,
                                          .attempt_total = 4,
                                          .attempt_seconds = 2,
                                          .last_ranks = "0",
                                          .last_reason = "x",
                                          .last_time = {}};
  Observed observed = reporting(job, 1, 0.5);
  observed.job.status.attempt = 1;
  observed.progress->attempt = 1;
  observed.pods = {pod(1, 0).running(), pod(1, 1).running()};
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.recoveries->total, 5);
  EXPECT_EQ(next.recoveries->seconds, 2.5);
}

// ---- Restarts of all processes by the launchers ----

Observed restarted(const Job& job, int64_t restarts, double in_seconds) {
  Observed observed = seen(job, {pod(0, 0).running(), pod(0, 1).running()});
  observed.launcher = LauncherStatus{
      .attempt = job.status.attempt,
      .in_pod_restarts = {
          .total = restarts, .seconds = in_seconds, .rank = 1, .reason = "rank 1 ended with exit code 3"}};
  return observed;
}

TEST(ReconcileInPodRestarts, ReportsThemOnce) {
  Observed observed = restarted(training(), 2, 4.5);
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0", "EmitEvent RestartedInPods"));
  EXPECT_EQ(only<EmitEvent>(plan).at(0).message,
            "all processes were started again in their pods, 2 times, 4.5 s: rank 1 ended with exit code 3");
  observed = after(observed, plan);
  const api::InPodRestarts& stored = *observed.job.status.in_pod_restarts;
  EXPECT_EQ(stored.total, 2);
  EXPECT_EQ(stored.seconds, 4.5);
  EXPECT_EQ(stored.last_rank, 1);
  EXPECT_EQ(observed.job.status.restarts.total, 0) << "the operator has not restarted the group";
  EXPECT_FALSE(observed.job.status.progress) << "a launcher reports no step, so that the job is never Stalled";
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());

  const Observed third = restarted(observed.job, 3, 6);
  EXPECT_EQ(status_after(third, reconcile(third)).in_pod_restarts->total, 3);
}

TEST(ReconcileInPodRestarts, AddsThoseOfTheNextAttempt) {
  Observed observed = restarted(training(), 2, 4.5);
  Job job = after(observed, reconcile(observed)).job;
  observed = restarted(job, 1, 1);
  observed.job.status.attempt = 1;
  observed.pods = {pod(1, 0).running(), pod(1, 1).running()};
  EXPECT_EQ(status_after(observed, reconcile(observed)).in_pod_restarts->total, 2) << "the report is of attempt 0";
  observed.launcher->attempt = 1;
  EXPECT_EQ(status_after(observed, reconcile(observed)).in_pod_restarts->total, 3);
  EXPECT_EQ(status_after(observed, reconcile(observed)).in_pod_restarts->seconds, 5.5);
}

TEST(ReconcileInPodRestarts, BoundsNumbersOfPods) {
  const Observed observed = restarted(training(), std::numeric_limits<int64_t>::max(), 1);
  EXPECT_FALSE(status_after(observed, reconcile(observed)).in_pod_restarts);
  Observed negative = restarted(training(), 1, -1);
  negative.launcher->in_pod_restarts.rank = -7;
  EXPECT_EQ(status_after(negative, reconcile(negative)).in_pod_restarts->seconds, 0);
  EXPECT_FALSE(status_after(negative, reconcile(negative)).in_pod_restarts->last_rank);
}

TEST(ReconcileRecoveries, BoundsNumbersOfPods) {
  for (const int64_t count : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    const Observed observed = reporting(training(), count, 1);
    EXPECT_FALSE(status_after(observed, reconcile(observed)).recoveries) << count;
  }
}

}  // namespace
}  // namespace oarlock::test
