// The ledger of a job: accelerator-milliseconds by class, which sum exactly to the allocated time.
#include "operator/core/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <string>

#include "operator/core/reconcile.h"
#include "tests/support/builders.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using Times = std::map<std::string, int64_t>;  // milliseconds; without classes that have none

int64_t unix_milliseconds(int64_t second) {
  return (at_second(second).time_since_epoch() / std::chrono::milliseconds(1));
}

Times times_of(const UsageMilliseconds& classes) {
  Times out;
  for (size_t i = 0; i < kUsageClasses.size(); ++i) {
    if (const int64_t time = classes[static_cast<UsageClass>(i)]; time != 0) out[std::string(kUsageClasses[i])] = time;
  }
  return out;
}

UsageSeconds reported(const std::map<UsageClass, double>& seconds) {
  UsageSeconds out;
  for (const auto& [one, value] : seconds) out[one] = value;
  return out;
}

// A job with a ledger, whose status and pods a test changes.
class Ledger : public ::testing::Test {
 protected:
  explicit Ledger(const JobBuilder& job = JobBuilder().nodes(2)) : observed_(seen(job)) {
    observed_.now = at_second(0);
  }

  // Writes a status of this phase at that time.
  Times write(int64_t second, Phase phase, int attempt = 0) {
    observed_.now = at_second(second);
    api::Status next = observed_.job.status;
    next.phase = phase;
    next.attempt = attempt;
    next.usage = account_usage(observed_, classify_objects(observed_), next);
    EXPECT_EQ(next.usage->classes.sum(), next.usage->allocated);
    observed_.job.status = next;
    return times_of(next.usage->classes);
  }

  // Both pods get a node and start at that time.
  void run_at(int64_t second) {
    observed_.pods.clear();
    for (int rank = 0; rank < 2; ++rank) observed_.pods.push_back(running(rank, second));
    write(second, Phase::kRunning, observed_.job.status.attempt);
  }

  PodBuilder running(int rank, int64_t second) const {
    return PodBuilder("bert", observed_.job.status.attempt, rank)
        .scheduled_at(at_second(second))
        .started_at(at_second(second));
  }

  void report(int64_t second, int64_t step, std::optional<UsageSeconds> seconds = std::nullopt) {
    observed_.progress = RankStatus{
        .attempt = observed_.job.status.attempt, .phase = "train", .step = step, .loss = {}, .updated_at = ""};
    observed_.progress->usage_seconds = seconds;
    observed_.step_received_at = at_second(second);
    observed_.last_poll = StatusPoll{at_second(second), true, true};
  }

  const api::Usage& usage() const { return *observed_.job.status.usage; }

  Observed observed_;
};

TEST_F(Ledger, StartIsDividedByTimesOfPods) {
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(10)).started_at(at_second(15)),
                    PodBuilder("bert", 0, 1).scheduled_at(at_second(20)).started_at(at_second(50))};
  EXPECT_EQ(write(60, Phase::kRunning), (Times{{"scheduling", 10'000}, {"pulling", 60'000}}));
  EXPECT_EQ(usage().queued, 30'000);
  EXPECT_EQ(usage().until, unix_milliseconds(50)) << "nothing is reported yet";
  EXPECT_EQ(usage().pods, 2);
}

TEST_F(Ledger, WaitingPodsAreQueued) {
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(10))};
  EXPECT_EQ(write(30, Phase::kPending), (Times{{"scheduling", 20'000}}));
  EXPECT_EQ(usage().queued, 40'000);
  observed_.job.spec.suspend = true;
  observed_.pods.clear();
  write(40, Phase::kSuspended);
  EXPECT_EQ(write(100, Phase::kPending, 1).at("scheduling"), 30'000);
  EXPECT_EQ(usage().queued, 40'000) << "a suspended job is not queued";
}

TEST_F(Ledger, ReportedTimesCountForEachAccelerator) {
  observed_.accelerators_per_pod = 8;
  run_at(10);
  report(20, 5, reported({{UsageClass::kRendezvous, 2.5}, {UsageClass::kProductive, 4.25}}));
  Times expected = {{"starting", 3'250 * 16}, {"rendezvous", 2'500 * 16}, {"productive", 4'250 * 16}};
  EXPECT_EQ(write(21, Phase::kRunning), expected);
  report(30, 9,
         reported({{UsageClass::kRendezvous, 2.5}, {UsageClass::kProductive, 10}, {UsageClass::kCheckpoint, 3}}));
  expected["productive"] = 10'000 * 16;
  expected["checkpoint"] = 3'000 * 16;
  EXPECT_EQ(write(33, Phase::kRunning), expected);
  EXPECT_EQ(usage().until, unix_milliseconds(10) + 18'750);
  expected["productive"] += 11'250 * 16;  // until the pods end
  for (Pod& pod : observed_.pods)
    pod = PodBuilder(pod.name.substr(0, 4), 0, pod.name.back() - '0')
              .scheduled_at(at_second(10))
              .ended(0)
              .finished_at(at_second(40));
  EXPECT_EQ(write(45, Phase::kComplete), expected);
  EXPECT_EQ(usage().pods, 0);
  EXPECT_DOUBLE_EQ(*goodput(usage()), 21.25 / 30);
  EXPECT_DOUBLE_EQ(*effective_training_time_ratio(usage()), 21.25 / 40) << "ten seconds before the start";
}

TEST_F(Ledger, FirstReportIncludesTimeBeforeOtherPodsStarted) {
  run_at(10);
  report(20, 1, reported({{UsageClass::kStarting, 4}, {UsageClass::kRendezvous, 9}, {UsageClass::kProductive, 3}}));
  EXPECT_EQ(write(20, Phase::kRunning), (Times{{"rendezvous", 14'000}, {"productive", 6'000}}));
}

TEST_F(Ledger, SecondReportMayIncludeTimeBeforeOtherPodsStarted) {
  observed_.pods = {running(0, 2), running(1, 10)};
  report(8, 0, reported({{UsageClass::kStarting, 6}}));
  Times expected = write(10, Phase::kRunning);
  report(20, 5, reported({{UsageClass::kStarting, 8}, {UsageClass::kProductive, 8}, {UsageClass::kCheckpoint, 2}}));
  expected["productive"] = 2 * 8'000;
  expected["checkpoint"] = 2 * 2'000;
  EXPECT_EQ(write(20, Phase::kRunning), expected);
}

TEST_F(Ledger, StepsWithoutTimesAreProductive) {
  run_at(10);
  report(14, 3);
  EXPECT_EQ(write(15, Phase::kRunning), (Times{{"starting", 8'000}}));
  report(20, 6);
  EXPECT_EQ(write(25, Phase::kRunning), (Times{{"starting", 8'000}, {"productive", 12'000}}));
  EXPECT_EQ(write(29, Phase::kRunning), (Times{{"starting", 8'000}, {"productive", 12'000}})) << "no new step";
}

TEST_F(Ledger, StepsOfEarlierAttemptsAreRecomputed) {
  observed_.job.status.progress.emplace().checkpoint_step = 60;
  run_at(0);
  report(0, 0);
  write(0, Phase::kRunning);
  report(10, 100);
  EXPECT_EQ(write(10, Phase::kRunning), (Times{{"productive", 20'000}}));
  EXPECT_EQ(write(13, Phase::kRestarting, 1), (Times{{"productive", 20'000}, {"recovery", 6'000}}));
  run_at(20);
  report(20, 60);
  write(20, Phase::kRunning, 1);
  EXPECT_EQ(usage().highest_step, 100);
  report(30, 140);
  EXPECT_EQ(write(30, Phase::kRunning, 1).at("recomputed"), 10'000) << "40 of 80 steps";
  EXPECT_EQ(times_of(usage().classes).at("productive"), 30'000);
}

TEST_F(Ledger, LauncherThatStartsAgainCountsFromZero) {
  run_at(0);
  report(10, 5, reported({{UsageClass::kProductive, 10}}));
  write(10, Phase::kRunning);
  report(20, 7, reported({{UsageClass::kRestore, 1}, {UsageClass::kProductive, 6}}));
  EXPECT_EQ(write(20, Phase::kRunning), (Times{{"productive", 32'000}, {"restore", 2'000}, {"recovery", 6'000}}));
}

TEST_F(Ledger, StallIsNotProductive) {
  run_at(0);
  report(10, 5, reported({{UsageClass::kProductive, 10}}));
  write(10, Phase::kRunning);
  EXPECT_EQ(write(40, Phase::kStalled), (Times{{"productive", 20'000}, {"stalled", 60'000}}));
  report(50, 6, reported({{UsageClass::kProductive, 50}}));
  EXPECT_EQ(write(50, Phase::kRunning), (Times{{"productive", 20'000}, {"stalled", 80'000}}));
  report(60, 8, reported({{UsageClass::kProductive, 60}}));
  EXPECT_EQ(write(60, Phase::kRunning), (Times{{"productive", 40'000}, {"stalled", 80'000}}));
}

TEST_F(Ledger, LostPodExistedUntilLastReport) {
  run_at(0);
  report(100, 5, reported({{UsageClass::kProductive, 100}}));
  observed_.pods.pop_back();
  EXPECT_EQ(write(102, Phase::kRestarting, 1), (Times{{"productive", 200'000}, {"recovery", 2'000}}));
}

// The kubelet that evicts a pod gives no time.
TEST_F(Ledger, PodThatEndedWithoutATimeExistedUntilLastReport) {
  run_at(0);
  report(100, 5, reported({{UsageClass::kProductive, 100}}));
  observed_.pods[1] = running(1, 0).evicted("low on memory");
  EXPECT_EQ(write(102, Phase::kRestarting, 1), (Times{{"productive", 200'000}, {"recovery", 2'000}}));
}

TEST_F(Ledger, RestartIsRecovery) {
  run_at(0);
  report(0, 0);
  write(0, Phase::kRunning);
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(0)).ended(1).finished_at(at_second(10)),
                    running(1, 0)};
  EXPECT_EQ(write(12, Phase::kRestarting, 1), (Times{{"recovery", 22'000}})) << "the first pod ended at 10 s";
  // The second pod has vanished, and both pods of the next attempt have nodes.
  observed_.pods = {PodBuilder("bert", 1, 0).scheduled_at(at_second(15)).started_at(at_second(18)),
                    PodBuilder("bert", 1, 1).scheduled_at(at_second(16)).started_at(at_second(20))};
  EXPECT_EQ(write(21, Phase::kRunning, 1), (Times{{"recovery", 22'000 + 8'000 + 9'000}}));
  EXPECT_EQ(usage().queued, 3'000 + 4'000);
}

TEST_F(Ledger, PodsOfEarlierAttemptsDoNotTrain) {
  run_at(0);
  report(0, 0);
  write(10, Phase::kRestarting, 1);
  const std::vector<Pod> old = observed_.pods;
  observed_.pods.clear();
  run_at(12);  // both old pods have vanished
  Times expected = {{"recovery", 20'000 + 4'000}};
  EXPECT_EQ(times_of(usage().classes), expected);
  report(12, 0);
  observed_.pods.push_back(old[0]);  // has not
  write(12, Phase::kRunning, 1);
  report(20, 4);
  expected["productive"] = 16'000;
  expected["recovery"] += 8'000;
  EXPECT_EQ(write(20, Phase::kRunning, 1), expected);
  observed_.pods.pop_back();
  report(25, 8);
  expected["productive"] += 10'000;
  expected["recovery"] += 5'000;
  EXPECT_EQ(write(25, Phase::kRunning, 1), expected);
}

TEST_F(Ledger, ProgramWithoutReportsIsUnreported) {
  run_at(0);
  EXPECT_EQ(write(100, Phase::kRunning), Times{});
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(0)).ended(0).finished_at(at_second(150)),
                    PodBuilder("bert", 0, 1).scheduled_at(at_second(0)).ended(0).finished_at(at_second(160))};
  EXPECT_EQ(write(170, Phase::kComplete), (Times{{"unreported", 310'000}}));
  EXPECT_EQ(goodput(usage()), 0);
}

TEST_F(Ledger, PodsThatOutliveTheirTrainerAreIdle) {
  run_at(0);
  report(0, 0);
  write(0, Phase::kRunning);
  observed_.pods[1] = PodBuilder("bert", 0, 1).scheduled_at(at_second(0)).trainer_ended(0).finished_at(at_second(4));
  report(10, 9);
  EXPECT_EQ(write(10, Phase::kRunning), (Times{{"productive", 14'000}, {"idle", 6'000}}));
  EXPECT_EQ(write(10, Phase::kComplete), (Times{{"productive", 14'000}, {"idle", 6'000}}));
  EXPECT_FALSE(is_usage_due(observed_, classify_objects(observed_))) << "the pods have not ended";
  for (Pod& pod : observed_.pods) pod.phase = PodPhase::kFailed;
  observed_.pods[0].trainer = Termination{143, "Error", "", at_second(17)};
  EXPECT_TRUE(is_usage_due(observed_, classify_objects(observed_)));
  EXPECT_EQ(write(20, Phase::kComplete), (Times{{"productive", 14'000}, {"idle", 6'000 + 7'000 + 10'000}}))
      << "it is not known when the second pod ended";
  EXPECT_FALSE(is_usage_due(observed_, classify_objects(observed_)));
}

TEST_F(Ledger, AbsurdReportsDoNotExceedElapsedTime) {
  run_at(0);
  const double huge = std::numeric_limits<double>::infinity();
  int64_t second = 0;
  for (const double value : {1e300, -5.0, huge, std::nan(""), 1e15, 0.0, 1e18}) {
    second += 7;
    report(
        second, std::numeric_limits<int64_t>::max() - second % 2,
        reported({{UsageClass::kProductive, value}, {UsageClass::kStarting, -value}, {UsageClass::kRestore, value}}));
    observed_.job.status.progress.emplace().checkpoint_step = std::numeric_limits<int64_t>::min();
    write(second, Phase::kRunning);
    EXPECT_LE(usage().allocated, 2000 * second);
  }
  write(100, Phase::kRestarting, 1);
  EXPECT_EQ(usage().allocated, 200'000);
}

TEST_F(Ledger, DamagedLedgerContinues) {
  run_at(0);
  for (const int64_t value : {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    api::Usage damaged{.accelerators_per_pod = value, .allocated = value, .queued = value, .until = value};
    damaged.pods = value > 0 ? std::numeric_limits<int>::max() : std::numeric_limits<int>::min();
    damaged.highest_step = value;
    damaged.step = value;
    observed_.job.status.usage = damaged;
    observed_.job.status.attempt = 0;
    observed_.now = at_second(50);
    const api::Usage next = account_usage(observed_, classify_objects(observed_), observed_.job.status);
    EXPECT_LE(next.until, unix_milliseconds(50));
    EXPECT_GE(next.allocated, 0);
  }
}

// A launcher that does one thing after another is read at random times, by a process that writes at others.
TEST_F(Ledger, EqualsCountersOfLauncherAfterLastReport) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    observed_ = seen(JobBuilder().nodes(2));
    observed_.now = at_second(0);
    const int64_t start = pick(0, 20);
    run_at(start);
    UsageSeconds counters;
    double elapsed = 0;  // since the start of the launcher, which reports nothing for a moment
    const double silence = pick(0, 3000) / 1000.0;
    int64_t step = 0;
    bool was_read = false;
    for (int64_t second = start + 4; second < start + 120; second += pick(1, 20)) {
      while (silence + elapsed < static_cast<double>(second - start)) {
        const double time = std::min(pick(1, 4000) / 1000.0, static_cast<double>(second - start) - silence - elapsed);
        const UsageClass one = kReportedUsageClasses[static_cast<size_t>(pick(0, kReportedUsageClasses.size() - 1))];
        counters[one] += time;
        elapsed += time;
        if (one == UsageClass::kProductive) ++step;
      }
      if (pick(0, 3) > 0) report(second, step, counters), was_read = true;
      observed_.now = at_second(second);
      write(second + pick(0, 2), Phase::kRunning);
    }
    if (!was_read) continue;
    const UsageSeconds& last = *observed_.progress->usage_seconds;
    for (const UsageClass one : kReportedUsageClasses) {
      const int64_t expected = 2 * std::llround(last[one] * 1000);
      const int64_t before = one == UsageClass::kStarting ? 2 * std::llround(silence * 1000) : 0;
      EXPECT_NEAR(usage().classes[one], expected + before, 2 * 5) << "seed " << seed << " " << static_cast<int>(one);
    }
  }
}

// ---- Clocks, and what processes report about themselves ------------------------------------------------------------

TEST_F(Ledger, FinishedJobIsNotWrittenAgainBecauseOfAClockThatIsAhead) {
  observed_ = seen(JobBuilder().nodes(2).phase(Phase::kComplete));
  observed_.job.status.usage.emplace();
  observed_.job.status.usage->until = unix_milliseconds(60);
  observed_.job.status.usage->pods = 1;
  observed_.pods = {PodBuilder("bert", 0, 0).scheduled_at(at_second(0)).ended(0).finished_at(at_second(360)),
                    PodBuilder("bert", 0, 1).scheduled_at(at_second(0)).ended(0).finished_at(at_second(50))};
  observed_.now = at_second(60) + std::chrono::milliseconds(20);
  for (const PatchStatus& patch : only<PatchStatus>(reconcile(observed_))) observed_.job.status = patch.status;
  observed_.now += std::chrono::milliseconds(20);
  EXPECT_TRUE(only<PatchStatus>(reconcile(observed_)).empty());
}

// oarlock-trainer serves step 0 while it connects and restores.
TEST_F(Ledger, StepsAfterACheckpointAreNew) {
  run_at(0);
  report(0, 0);
  write(0, Phase::kRunning);
  report(10, 4000);
  write(10, Phase::kRunning);
  write(10, Phase::kRestarting, 1);
  run_at(20);
  report(25, 0, reported({{UsageClass::kStarting, 5}}));
  write(25, Phase::kRunning, 1);
  report(35, 4020, reported({{UsageClass::kStarting, 5}, {UsageClass::kRestore, 2}, {UsageClass::kProductive, 8}}));
  observed_.progress->checkpoint_step = 4000;
  write(35, Phase::kRunning, 1);
  EXPECT_EQ(usage().classes[UsageClass::kRecomputed], 0);
}

TEST_F(Ledger, StepsThatTheLauncherCountsAsRecomputedAreSoOnce) {
  run_at(0);
  report(0, 0, reported({}));
  write(0, Phase::kRunning);
  report(100, 100, reported({{UsageClass::kProductive, 100}}));
  write(100, Phase::kRunning);
  observed_.job.status.progress.emplace().checkpoint_step = 50;
  report(120, 60,
         reported({{UsageClass::kProductive, 100}, {UsageClass::kRecovery, 10}, {UsageClass::kRecomputed, 10}}));
  write(120, Phase::kRunning);
  report(180, 120,
         reported({{UsageClass::kProductive, 120}, {UsageClass::kRecovery, 10}, {UsageClass::kRecomputed, 50}}));
  write(180, Phase::kRunning);
  EXPECT_EQ(usage().classes[UsageClass::kRecomputed], 2 * 50'000);
  EXPECT_EQ(usage().classes[UsageClass::kProductive], 2 * 120'000);
}

TEST_F(Ledger, NewStepsBeforeARestartInThePodAreProductive) {
  run_at(0);
  report(0, 0, reported({}));
  write(0, Phase::kRunning);
  report(100, 100, reported({{UsageClass::kProductive, 100}}));
  write(100, Phase::kRunning);
  report(140, 90, reported({{UsageClass::kProductive, 130}, {UsageClass::kRecomputed, 10}}));
  EXPECT_EQ(write(140, Phase::kRunning), (Times{{"productive", 2 * 130'000}, {"recomputed", 2 * 10'000}}));
}

// Kubernetes' times have whole seconds.
TEST_F(Ledger, PodThatEndedInTheSecondOfTheLastWriteHasNotVanished) {
  run_at(0);
  report(0, 0);
  write(0, Phase::kRunning);
  observed_.now = at_second(10) + std::chrono::milliseconds(300);
  api::Status next = observed_.job.status;
  next.usage = account_usage(observed_, classify_objects(observed_), next);
  observed_.job.status = next;
  const int64_t before = usage().allocated;
  for (int rank = 0; rank < 2; ++rank)
    observed_.pods[rank] = PodBuilder("bert", 0, rank).scheduled_at(at_second(0)).ended(1).finished_at(at_second(10));
  write(40, Phase::kRestarting, 1);
  EXPECT_LE(usage().allocated - before, 2 * 10'000);
}

// A rank that waits in a collective counts its time as that of a step.
TEST_F(Ledger, HangBeforeThePhaseStalledIsStalled) {
  run_at(0);
  report(10, 5, reported({{UsageClass::kProductive, 10}}));
  write(10, Phase::kRunning);
  report(610, 5, reported({{UsageClass::kProductive, 610}}));
  write(610, Phase::kStalled);
  EXPECT_EQ(usage().classes[UsageClass::kProductive], 2 * 10'000);
  EXPECT_EQ(usage().classes[UsageClass::kStalled], 2 * 600'000);
}

TEST_F(Ledger, FirstReportIsAsOldAsItsPoll) {
  run_at(0);
  report(600, 0, reported({{UsageClass::kStarting, 5}, {UsageClass::kRestore, 590}, {UsageClass::kProductive, 5}}));
  observed_.step_received_at = at_second(5);
  observed_.progress_sent_at = at_second(600);
  observed_.last_poll = StatusPoll{at_second(603), false, false};
  write(603, Phase::kRunning);
  EXPECT_EQ(usage().classes[UsageClass::kRestore], 2 * 590'000);
}

TEST_F(Ledger, LastEvaluationIsNotProductive) {
  run_at(0);
  report(100, 100, reported({{UsageClass::kProductive, 100}}));
  write(100, Phase::kRunning);
  report(400, 100, reported({{UsageClass::kProductive, 100}, {UsageClass::kEvaluation, 300}}));
  observed_.progress->phase = "eval";
  write(402, Phase::kComplete);
  EXPECT_EQ(usage().classes[UsageClass::kEvaluation], 2 * 302'000);
}

}  // namespace
}  // namespace oarlock::test
