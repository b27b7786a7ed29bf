#include "operator/core/status.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "operator/core/reconcile.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;

api::Status refreshed(const Observed& observed) { return refresh(observed, split(observed)); }
PodBuilder pod(int node_rank, int attempt = 0) { return {"bert", attempt, node_rank}; }

std::string text_of(const api::Status& status) {
  const api::Condition* condition = find_condition(status, status.phase);
  if (condition == nullptr) throw std::runtime_error("no condition of the phase");  // fails the test
  return condition->reason + ": " + condition->message;
}

TEST(Status, EnterKeepsOneConditionTrueAndTimesHonest) {
  api::Status status;
  enter(status, Phase::kPending, "A", "a", at_second(1));
  enter(status, Phase::kPending, "B", "b", at_second(2));
  ASSERT_EQ(status.conditions.size(), 1U);
  EXPECT_EQ(status.conditions[0], (api::Condition{"Pending", true, "B", "b", at_second(1)}));
  enter(status, Phase::kRunning, "C", "c", at_second(3));
  EXPECT_EQ(status.conditions[0], (api::Condition{"Pending", false, "B", "b", at_second(3)}));
  EXPECT_EQ(status.conditions[1], (api::Condition{"Running", true, "C", "c", at_second(3)}));
  EXPECT_FALSE(status.completion_time);
  enter(status, Phase::kComplete, "D", "d", at_second(4) + std::chrono::milliseconds(900));
  EXPECT_EQ(status.completion_time, at_second(4)) << "whole seconds, as they come back from the API server";
  EXPECT_EQ(status.phase, Phase::kComplete);
}

TEST(Status, EnterLeavesConditionsOfOtherControllers) {
  api::Condition reviewed;
  reviewed.type = "Reviewed";
  reviewed.verbatim = R"({"status":"True","type":"Reviewed"})";
  api::Status status;
  enter(status, Phase::kPending, "A", "a", at_second(1));
  status.conditions.insert(status.conditions.begin(), reviewed);
  enter(status, Phase::kRunning, "B", "b", at_second(2));
  ASSERT_EQ(status.conditions.size(), 3U);
  EXPECT_EQ(status.conditions[0], reviewed);
  EXPECT_EQ(status.conditions[1].type, "Pending");
  EXPECT_EQ(status.conditions[2].type, "Running");
}

TEST(Status, CountsThePodsOfThisAttempt) {
  const api::Status status =
      refreshed(seen(JobBuilder().nodes(6).processes_per_node(2).phase(Phase::kRunning, 1),
                     {pod(0, 1).running(), pod(1, 1).ended(0), pod(2, 1).ended(1), pod(3, 1).scheduled(), pod(4, 1),
                      pod(5, 1).running().deleting(), pod(0, 0).running()}));
  EXPECT_EQ(status.nodes, (api::NodeCounts{6, 4, 1, 1, 1, "1/6"}));
  EXPECT_EQ(status.world_size, 12);
}

TEST(Status, ReadyDoesNotCountPodsThatHaveEnded) {
  const api::Status status = refreshed(
      seen(JobBuilder().nodes(3).phase(Phase::kRunning), {pod(0).running(), pod(1).ended(0), pod(2).ended(0)}));
  EXPECT_EQ(status.nodes.summary, "1/3");
  EXPECT_EQ(status.nodes.succeeded, 2);
}

TEST(Status, ANewJobIsPending) {
  Observed observed = seen(JobBuilder());
  observed.now += std::chrono::milliseconds(300);
  const api::Status status = refreshed(observed);
  EXPECT_EQ(status.phase, Phase::kPending);
  EXPECT_EQ(status.start_time, at_second(60));
  EXPECT_EQ(status.attempt_start_time, at_second(60));
  EXPECT_EQ(status.observed_generation, 1);
  EXPECT_EQ(text_of(status), "PodsStarting: 0 of 2 pods have started");
}

TEST(Status, RunsOnceAllHaveStartedAndStaysSo) {
  const Job pending = JobBuilder().phase(Phase::kPending);
  EXPECT_EQ(refreshed(seen(pending, {pod(0).running(), pod(1).scheduled()})).phase, Phase::kPending);
  EXPECT_EQ(refreshed(seen(pending, {pod(0).running()})).phase, Phase::kPending);
  const api::Status running = refreshed(seen(pending, {pod(0).running(), pod(1).ended(0)}));
  EXPECT_EQ(text_of(running), "PodsRunning: all 2 pods have started");
  EXPECT_EQ(refreshed(seen(JobBuilder().phase(Phase::kRunning), {pod(0).running()})).phase, Phase::kRunning);
}

TEST(Status, SaysWhatItWaitsFor) {
  const Job pending = JobBuilder().phase(Phase::kPending);
  const auto text = [&](std::vector<Pod> pods, const std::string& last_error = "") {
    Observed observed = seen(pending, std::move(pods));
    observed.last_error = last_error;
    return text_of(refreshed(observed));
  };
  EXPECT_EQ(text({pod(0).running(), pod(1).unschedulable("0/2 nodes are available")}),
            "Unschedulable: 1 of 2 pods have started; pod bert-0-1: 0/2 nodes are available");
  EXPECT_EQ(text({pod(0).running(), pod(1).waiting("ContainerCreating")}), "PodsStarting: 1 of 2 pods have started");
  EXPECT_EQ(
      text({pod(0).waiting("CreateContainerConfigError", "secret \"x\" not found"), pod(1).unschedulable("none")}),
      "CreateContainerConfigError: 0 of 2 pods have started; pod bert-0-0: CreateContainerConfigError: secret \"x\" "
      "not found");
  EXPECT_EQ(text({pod(0).running()}, "pods \"bert-0-1\" is forbidden:\nexceeded quota"),
            "CreateRefused: 1 of 2 pods have started; the API server refused: pods \"bert-0-1\" is forbidden: exceeded "
            "quota");
  EXPECT_EQ(text({pod(0).running(), pod(1)}, "late news"), "PodsStarting: 1 of 2 pods have started")
      << "nothing is missing any more";
}

TEST(Status, TheKubeletsTwoNamesForAFailedPullDoNotFlap) {
  const Job pending = JobBuilder().nodes(1).phase(Phase::kPending);
  const auto reason = [&](const char* waiting) {
    const std::string text = text_of(refreshed(seen(pending, {pod(0).waiting(waiting, "x")})));
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(reason("ErrImagePull"), reason("ImagePullBackOff"));
}

TEST(Status, RestartingKeepsItsCauseInSight) {
  api::Status before = JobBuilder().phase(Phase::kRestarting, 1).build().status;
  before.attempts = {{0, at_second(1), at_second(2), "OOMKilled", "pod bert-0-1 ended", "bert-0-1", "node-1", 1, 137}};
  EXPECT_EQ(text_of(refreshed(seen(JobBuilder().status(before), {pod(0, 1).running()}))),
            "OOMKilled: attempt 0: pod bert-0-1 ended; 1 of 2 pods have started");
}

RankStatus rank_status() {
  RankStatus out;
  out.attempt = 1;
  out.step = 420;
  out.target_steps = 1000;
  out.checkpoint_step = 400;
  out.loss = 0.12345678;
  out.samples_per_second = 1234.567;
  out.last_step_seconds = 0.5;
  out.updated_at = "2026-11-21T10:00:30.5Z";
  return out;
}

TEST(Status, TakesProgressOfThisAttemptOnly) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning, 1), {pod(0, 1).running(), pod(1, 1).running()});
  observed.progress = rank_status();
  const api::Progress expected = {420,           1000,         400, "42%", 0.123457, 1235, at_second(30 + 290),
                                  at_second(30), at_second(60)};
  EXPECT_EQ(refreshed(observed).progress, expected);
  observed.progress->attempt = 0;
  EXPECT_FALSE(refreshed(observed).progress);
  observed.job.status.progress = expected;
  EXPECT_EQ(refreshed(observed).progress, expected) << "what was known stays";
  observed.progress.reset();
  EXPECT_EQ(refreshed(observed).progress, expected) << "so it does after a restart of the operator";
}

TEST(Status, LeavesOutWhatARankDoesNotKnow) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning, 1));
  observed.progress.emplace().attempt = 1;
  observed.progress->loss = std::numeric_limits<double>::quiet_NaN();
  api::Progress least;
  least.last_step_time = at_second(60);
  EXPECT_EQ(refreshed(observed).progress, least);
  observed.progress = rank_status();
  observed.progress->last_step_seconds = 1e30;
  EXPECT_FALSE(refreshed(observed).progress->eta);
  observed.progress->step = 5000;
  EXPECT_EQ(refreshed(observed).progress->completed, "100%");
}

// Any pod may answer with any numbers. Under UBSan no combination of extremes overflows; everywhere the status that
// follows can be written: its times are times, and its numbers are finite.
TEST(Status, ExtremeNumbersOfARankOverflowNothing) {
  using I = std::numeric_limits<int64_t>;
  using D = std::numeric_limits<double>;
  const int64_t steps[] = {I::min(), -1, 0, 1, 1000, I::max()};
  const double values[] = {-D::infinity(), -D::max(),     -1, 0, D::denorm_min(), 1, 3e9, D::max(),
                           D::infinity(),  D::quiet_NaN()};
  const char* times[] = {"", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-11-21T10:00:30Z", "now"};
  Observed observed = seen(JobBuilder().stall_seconds(std::numeric_limits<int>::max()).phase(Phase::kRunning, 1),
                           {pod(0, 1).running(), pod(1, 1).running()});
  for (const int64_t step : steps) {
    for (const int64_t target : steps) {
      for (const double value : values) {
        for (const char* time : times) {
          RankStatus& rank = observed.progress.emplace();
          rank.attempt = 1;
          rank.step = step;
          rank.target_steps = target;
          rank.checkpoint_step = step;
          rank.loss = rank.samples_per_second = rank.last_step_seconds = value;
          rank.updated_at = time;
          const api::Progress progress = *refreshed(observed).progress;
          EXPECT_GE(progress.step, 0);
          EXPECT_TRUE(std::isfinite(progress.loss.value_or(0)));
          EXPECT_TRUE(std::isfinite(progress.samples_per_second.value_or(0)));
          if (progress.eta) {
            EXPECT_GE(*progress.eta, *progress.updated_at);
            EXPECT_LT(*progress.eta, *progress.updated_at + std::chrono::hours(24 * 36600));
            SystemTime stored{};
            EXPECT_TRUE(from_rfc3339(to_rfc3339(*progress.eta), stored));
            EXPECT_EQ(stored, *progress.eta) << "it is stored as it is";
          }
          const Plan plan = reconcile(observed);
          EXPECT_FALSE(plan.reason.empty());
        }
      }
    }
  }
}

TEST(Status, ExtremeNumbersOfATerminationMessageOverflowNothing) {
  for (const char* step : {"-9223372036854775808", "9223372036854775807", "18446744073709551615", "1e308", "-1"}) {
    api::Status status;
    status.progress = api::Progress{};
    status.progress->target_steps = 1000;
    const Observed observed =
        seen(JobBuilder().phase(Phase::kRunning),
             {pod(0).ended(0, std::string(R"({"rank":0,"step":)") + step + R"(,"checkpointStep":)" + step +
                                  R"(,"reason":"Completed","message":""})"),
              pod(1).ended(0)});
    read_last_words(split(observed), status, at_second(61));
    EXPECT_GE(status.progress->step, 0) << step;
    EXPECT_FALSE(status.progress->completed.empty()) << step;
  }
}

TEST(Status, TheStepsTimeIsWhenItWasReceivedHoweverLateItIsWritten) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning, 1), {pod(0, 1).running(), pod(1, 1).running()});
  observed.job.status.progress = api::Progress{};
  observed.job.status.progress->step = 7;
  observed.job.status.progress->last_step_time = at_second(10);
  observed.progress = rank_status();
  observed.step_received_at = at_second(20) + std::chrono::milliseconds(700);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(20));
  observed.step_received_at = at_second(5);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(10)) << "the attempt began to run after it";
  observed.progress->step = 7;
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(10));
}

TEST(Status, TheTerminationMessageHasTheLastStep) {
  api::Status status;
  status.progress = api::Progress{900, 1000, 800, "90%", 0.5, 100, at_second(99), at_second(30), at_second(31)};
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRunning),
           {pod(0).ended(0, R"({"rank":0,"step":1000,"checkpointStep":1000,"reason":"Completed","message":""})"),
            pod(1).ended(0)});
  read_last_words(split(observed), status, at_second(61));
  api::Progress last = {1000, 1000, 1000, "100%", 0.5, 100, std::nullopt, at_second(59), at_second(61)};
  EXPECT_EQ(status.progress, last);
  read_last_words(split(observed), status, at_second(70));
  EXPECT_EQ(status.progress, last) << "the same step again is none";
}

TEST(Status, TheTimeOfTheLastStepIsOurOwn) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning, 1), {pod(0, 1).running(), pod(1, 1).running()});
  const auto step_time = [&](int64_t step, int64_t now) {
    observed.progress = rank_status();
    observed.progress->step = step;
    observed.progress->updated_at = "2031-01-01T00:00:00Z";  // a clock that is wrong
    observed.now = at_second(now) + std::chrono::milliseconds(900);
    observed.job.status = refreshed(observed);
    return observed.job.status.progress->last_step_time;
  };
  EXPECT_EQ(step_time(10, 100), at_second(100));
  EXPECT_EQ(step_time(10, 200), at_second(100));
  EXPECT_EQ(step_time(11, 300), at_second(300));
  EXPECT_EQ(step_time(5, 400), at_second(400)) << "back to a checkpoint is a movement too";
  observed.progress->attempt = 0;
  observed.progress->step = 77;
  observed.now = at_second(500);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(400)) << "of another attempt";
}

TEST(Status, TheStepsOfAnAttemptCountFromWhenItRuns) {
  Job job = JobBuilder().nodes(1).phase(Phase::kRestarting, 1);
  job.status.progress = api::Progress{900, 1000, 800, "90%", 0.5, 100, std::nullopt, at_second(30), at_second(31)};
  Observed observed = seen(job, {pod(0, 1).scheduled()});
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(31));
  observed.pods = {pod(0, 1).running()};
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(60));
  EXPECT_EQ(refreshed(observed).progress->step, 900);
}

TEST(Status, RemembersTheLastAttempts) {
  api::Status status;
  status.attempt_start_time = at_second(5);
  for (int attempt = 0; attempt < 15; ++attempt) {
    api::AttemptRecord record;
    record.attempt = attempt;
    remember(status, record, at_second(7));
  }
  ASSERT_EQ(status.attempts.size(), api::kMaxAttemptRecords);
  EXPECT_EQ(status.attempts.front().attempt, 5);
  EXPECT_EQ(status.attempts.back().attempt, 14);
  EXPECT_EQ(status.attempts.back().start_time, at_second(5));
  EXPECT_EQ(status.attempts.back().end_time, at_second(7));
}

}  // namespace
}  // namespace oarlock::test
