#include "operator/core/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "operator/core/progress.h"
#include "operator/core/reconcile.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::HasSubstr;

api::Status refreshed(const Observed& observed) { return refresh_status(observed, classify_objects(observed)); }
PodBuilder pod_in_attempt(int node_rank, int attempt = 0) { return {"bert", attempt, node_rank}; }

std::string text_of(const api::Status& status) {
  const api::Condition* condition = find_condition(status, status.phase);
  if (condition == nullptr) throw std::runtime_error("no condition of the phase");  // fails the test
  return condition->reason + ": " + condition->message;
}

TEST(Status, EnterPhaseKeepsOneConditionTrue) {
  api::Status status;
  enter_phase(status, Phase::kPending, "A", "a", at_second(1));
  enter_phase(status, Phase::kPending, "B", "b", at_second(2));
  ASSERT_EQ(status.conditions.size(), 1U);
  EXPECT_EQ(status.conditions[0], (api::Condition{"Pending", true, "B", "b", at_second(1)}));
  enter_phase(status, Phase::kRunning, "C", "c", at_second(3));
  EXPECT_EQ(status.conditions[0], (api::Condition{"Pending", false, "B", "b", at_second(3)}));
  EXPECT_EQ(status.conditions[1], (api::Condition{"Running", true, "C", "c", at_second(3)}));
  EXPECT_FALSE(status.completion_time);
  enter_phase(status, Phase::kComplete, "D", "d", at_second(4) + std::chrono::milliseconds(900));
  EXPECT_EQ(status.completion_time, at_second(4)) << "whole seconds, as the API server stores them";
  EXPECT_EQ(status.phase, Phase::kComplete);
}

TEST(Status, EnterPhasePreservesForeignConditions) {
  api::Condition reviewed;
  reviewed.type = "Reviewed";
  reviewed.verbatim = R"({"status":"True","type":"Reviewed"})";
  api::Status status;
  enter_phase(status, Phase::kPending, "A", "a", at_second(1));
  status.conditions.insert(status.conditions.begin(), reviewed);
  enter_phase(status, Phase::kRunning, "B", "b", at_second(2));
  ASSERT_EQ(status.conditions.size(), 3U);
  EXPECT_EQ(status.conditions[0], reviewed);
  EXPECT_EQ(status.conditions[1].type, "Pending");
  EXPECT_EQ(status.conditions[2].type, "Running");
}

TEST(Status, CountsPodsOfCurrentAttempt) {
  const api::Status status =
      refreshed(seen(JobBuilder().nodes(6).processes_per_node(2).phase(Phase::kRunning, 1),
                     {pod_in_attempt(0, 1).running(), pod_in_attempt(1, 1).ended(0), pod_in_attempt(2, 1).ended(1),
                      pod_in_attempt(3, 1).scheduled(), pod_in_attempt(4, 1), pod_in_attempt(5, 1).running().deleting(),
                      pod_in_attempt(0, 0).running()}));
  EXPECT_EQ(status.nodes, (api::NodeCounts{6, 4, 1, 1, 1, "1/6"}));
  EXPECT_EQ(status.world_size, 12);
}

TEST(Status, ReadyExcludesEndedPods) {
  const api::Status status =
      refreshed(seen(JobBuilder().nodes(3).phase(Phase::kRunning),
                     {pod_in_attempt(0).running(), pod_in_attempt(1).ended(0), pod_in_attempt(2).ended(0)}));
  EXPECT_EQ(status.nodes.summary, "1/3");
  EXPECT_EQ(status.nodes.succeeded, 2);
}

TEST(Status, NewJobIsPending) {
  Observed observed = seen(JobBuilder());
  observed.now += std::chrono::milliseconds(300);
  const api::Status status = refreshed(observed);
  EXPECT_EQ(status.phase, Phase::kPending);
  EXPECT_EQ(status.start_time, at_second(60));
  EXPECT_EQ(status.attempt_start_time, at_second(60));
  EXPECT_EQ(status.observed_generation, 1);
  EXPECT_EQ(text_of(status), "PodsStarting: 0 of 2 pods have started");
}

TEST(Status, RunsOnceAllPodsStarted) {
  const Job pending = JobBuilder().phase(Phase::kPending);
  EXPECT_EQ(refreshed(seen(pending, {pod_in_attempt(0).running(), pod_in_attempt(1).scheduled()})).phase,
            Phase::kPending);
  EXPECT_EQ(refreshed(seen(pending, {pod_in_attempt(0).running()})).phase, Phase::kPending);
  const api::Status running = refreshed(seen(pending, {pod_in_attempt(0).running(), pod_in_attempt(1).ended(0)}));
  EXPECT_EQ(text_of(running), "PodsRunning: all 2 pods have started");
  EXPECT_EQ(refreshed(seen(JobBuilder().phase(Phase::kRunning), {pod_in_attempt(0).running()})).phase, Phase::kRunning);
  const api::Status alone =
      refreshed(seen(JobBuilder().nodes(1).phase(Phase::kPending), {pod_in_attempt(0).running()}));
  EXPECT_EQ(text_of(alone), "PodsRunning: the pod has started");
}

TEST(Status, ReportsWhatPodsWaitFor) {
  const Job pending = JobBuilder().phase(Phase::kPending);
  const auto text = [&](std::vector<Pod> pods, const std::string& last_error = "") {
    Observed observed = seen(pending, std::move(pods));
    observed.last_error = last_error;
    return text_of(refreshed(observed));
  };
  EXPECT_EQ(text({pod_in_attempt(0).running(), pod_in_attempt(1).unschedulable("0/2 nodes are available")}),
            "Unschedulable: 1 of 2 pods have started; pod bert-0-1: 0/2 nodes are available");
  EXPECT_EQ(text({pod_in_attempt(0).running(), pod_in_attempt(1).waiting("ContainerCreating")}),
            "PodsStarting: 1 of 2 pods have started");
  EXPECT_EQ(
      text({pod_in_attempt(0).waiting("CreateContainerConfigError", "secret \"x\" not found"),
            pod_in_attempt(1).unschedulable("none")}),
      "CreateContainerConfigError: 0 of 2 pods have started; pod bert-0-0: CreateContainerConfigError: secret \"x\" "
      "not found");
  EXPECT_EQ(text({pod_in_attempt(0).running()}, "pods \"bert-0-1\" is forbidden:\nexceeded quota"),
            "CreateRefused: 1 of 2 pods have started; the API server refused: pods \"bert-0-1\" is forbidden: exceeded "
            "quota");
  EXPECT_EQ(text({pod_in_attempt(0).running(), pod_in_attempt(1)}, "late news"),
            "PodsStarting: 1 of 2 pods have started")
      << "no pods are missing";
}

// A misspelled schedulerName, or a scheduler that does not run: Kubernetes reports nothing.
TEST(Status, ReportsPodsThatNoSchedulerConsiders) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod_in_attempt(0), pod_in_attempt(1)});
  observed.pods[0].created = at_second(1);
  observed.pods[1].created = at_second(0);
  EXPECT_EQ(scheduler_deadline(classify_objects(observed)), at_second(60));
  EXPECT_EQ(text_of(refreshed(observed)),
            "Unschedulable: 0 of 2 pods have started; no scheduler has considered them for 60 s: does the one that "
            "schedulerName of spec.template names run?");
  observed.now = at_second(59);
  EXPECT_EQ(text_of(refreshed(observed)), "PodsStarting: 0 of 2 pods have started");
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1));
  observed.pods[0].node_name = "chosen-by-the-template";
  observed.pods[1].unscheduled_message = "gated";
  EXPECT_EQ(scheduler_deadline(classify_objects(observed)), std::nullopt);
}

// Its label was removed, so that no watch reports its changes.
TEST(Status, NamesPodWithoutTheLabel) {
  Pod unlabeled = pod_in_attempt(1).running();
  unlabeled.unlabeled = true;
  const auto condition_in = [](const api::Status& status) {
    const auto found = std::ranges::find(status.conditions, api::kConditionPodsUnlabeled, &api::Condition::type);
    return found == status.conditions.end() ? "" : found->reason + ": " + found->message;
  };
  const Job job = JobBuilder().phase(Phase::kRunning);
  Observed observed = seen(job, {pod_in_attempt(0).running(), unlabeled});
  const api::Status status = refreshed(observed);
  EXPECT_THAT(condition_in(status),
              HasSubstr("LabelRemoved: pod bert-0-1 does not have the label oarlock.dev/job-name=bert"));
  EXPECT_THAT(condition_in(status),
              HasSubstr("kubectl label pod bert-0-1 -n " + job.metadata.namespace_name + " --overwrite"));
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(30));
  observed.job.status = status;
  observed.pods[1].unlabeled = false;
  EXPECT_EQ(condition_in(refreshed(observed)), "");
  EXPECT_EQ(reconcile(observed).requeue_after, std::nullopt);
}

TEST(Status, ImagePullReasonDoesNotFlap) {
  const Job pending = JobBuilder().nodes(1).phase(Phase::kPending);
  const auto reason = [&](const char* waiting) {
    const std::string text = text_of(refreshed(seen(pending, {pod_in_attempt(0).waiting(waiting, "x")})));
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(reason("ErrImagePull"), reason("ImagePullBackOff"));
}

TEST(Status, RestartingShowsCauseOfFailure) {
  api::Status before = JobBuilder().phase(Phase::kRestarting, 1).build().status;
  before.attempts = {{0, at_second(1), at_second(2), "OOMKilled", "pod bert-0-1 ended", "bert-0-1", "node-1", 1, 137,
                      "", std::nullopt, std::nullopt, std::nullopt, std::nullopt}};
  EXPECT_EQ(text_of(refreshed(seen(JobBuilder().status(before), {pod_in_attempt(0, 1).running()}))),
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

TEST(Status, UsesProgressOfCurrentAttemptOnly) {
  Observed observed =
      seen(JobBuilder().phase(Phase::kRunning, 1), {pod_in_attempt(0, 1).running(), pod_in_attempt(1, 1).running()});
  observed.progress = rank_status();
  const api::Progress expected = {420,           1000,         400, "42%", 0.123457, 1235, at_second(30 + 290),
                                  at_second(30), at_second(60)};
  EXPECT_EQ(refreshed(observed).progress, expected);
  observed.progress->attempt = 0;
  EXPECT_FALSE(refreshed(observed).progress);
  observed.job.status.progress = expected;
  EXPECT_EQ(refreshed(observed).progress, expected) << "the last progress is kept";
  observed.progress.reset();
  EXPECT_EQ(refreshed(observed).progress, expected) << "also after a restart of the operator";
}

TEST(Status, OmitsUnknownProgress) {
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

// A pod can report any numbers. With UBSan, this test verifies that no combination of extremes overflows. In all
// builds, it verifies that the resulting status can be written: all times are valid and all numbers are finite.
TEST(Status, ExtremeProgressDoesNotOverflow) {
  using I = std::numeric_limits<int64_t>;
  using D = std::numeric_limits<double>;
  const int64_t steps[] = {I::min(), -1, 0, 1, 1000, I::max()};
  const double values[] = {-D::infinity(), -D::max(),     -1, 0, D::denorm_min(), 1, 3e9, D::max(),
                           D::infinity(),  D::quiet_NaN()};
  const char* times[] = {"", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-11-21T10:00:30Z", "now"};
  Observed observed = seen(JobBuilder().stall_seconds(std::numeric_limits<int>::max()).phase(Phase::kRunning, 1),
                           {pod_in_attempt(0, 1).running(), pod_in_attempt(1, 1).running()});
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
            EXPECT_EQ(stored, *progress.eta) << "the stored time is equal";
          }
          const Plan plan = reconcile(observed);
          EXPECT_FALSE(plan.reason.empty());
        }
      }
    }
  }
}

TEST(Status, ExtremeTerminationMessageDoesNotOverflow) {
  for (const char* step : {"-9223372036854775808", "9223372036854775807", "18446744073709551615", "1e308", "-1"}) {
    api::Status status;
    status.progress = api::Progress{};
    status.progress->target_steps = 1000;
    const Observed observed =
        seen(JobBuilder().phase(Phase::kRunning),
             {pod_in_attempt(0).ended(0, std::string(R"({"rank":0,"step":)") + step + R"(,"checkpointStep":)" + step +
                                             R"(,"reason":"Completed","message":""})"),
              pod_in_attempt(1).ended(0)});
    apply_termination_message(classify_objects(observed), status, at_second(61));
    EXPECT_GE(status.progress->step, 0) << step;
    EXPECT_FALSE(status.progress->completed.empty()) << step;
  }
}

TEST(Status, LastStepTimeIsTimeOfReceipt) {
  Observed observed =
      seen(JobBuilder().phase(Phase::kRunning, 1), {pod_in_attempt(0, 1).running(), pod_in_attempt(1, 1).running()});
  observed.job.status.progress = api::Progress{};
  observed.job.status.progress->step = 7;
  observed.job.status.progress->last_step_time = at_second(10);
  observed.progress = rank_status();
  observed.step_received_at = at_second(20) + std::chrono::milliseconds(700);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(20));
  observed.step_received_at = at_second(5);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(10)) << "the attempt started to run later";
  observed.progress->step = 7;
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(10));
}

TEST(Status, TerminationMessageSetsLastStep) {
  api::Status status;
  status.progress = api::Progress{900, 1000, 800, "90%", 0.5, 100, at_second(99), at_second(30), at_second(31)};
  const Observed observed = seen(
      JobBuilder().phase(Phase::kRunning),
      {pod_in_attempt(0).ended(0, R"({"rank":0,"step":1000,"checkpointStep":1000,"reason":"Completed","message":""})"),
       pod_in_attempt(1).ended(0)});
  apply_termination_message(classify_objects(observed), status, at_second(61));
  api::Progress last = {1000, 1000, 1000, "100%", 0.5, 100, std::nullopt, at_second(59), at_second(61)};
  EXPECT_EQ(status.progress, last);
  apply_termination_message(classify_objects(observed), status, at_second(70));
  EXPECT_EQ(status.progress, last) << "the same step does not count again";
}

// The launcher writes such a message for a rank that has left none. Earlier versions wrote step 0.
TEST(Status, TerminationMessageWithoutStepKeepsProgress) {
  for (const char* message : {R"({"rank":0,"step":0,"checkpointStep":-1,"reason":"KilledBySignal","message":""})",
                              R"({"rank":0,"checkpointStep":-1,"reason":"KilledBySignal","message":""})"}) {
    api::Status status;
    status.progress = api::Progress{900, 1000, 800, "90%", 0.5, 100, at_second(99), at_second(30), at_second(31)};
    const Observed observed =
        seen(JobBuilder().phase(Phase::kRunning), {pod_in_attempt(0).ended(137, message), pod_in_attempt(1).running()});
    apply_termination_message(classify_objects(observed), status, at_second(61));
    const api::Progress kept = {900, 1000, 800, "90%", 0.5, 100, std::nullopt, at_second(30), at_second(31)};
    EXPECT_EQ(status.progress, kept) << message;
    status.progress.reset();
    apply_termination_message(classify_objects(observed), status, at_second(61));
    EXPECT_FALSE(status.progress) << "a program that reports no steps would count as stalled";
  }
}

TEST(Status, LastStepTimeUsesOperatorClock) {
  Observed observed =
      seen(JobBuilder().phase(Phase::kRunning, 1), {pod_in_attempt(0, 1).running(), pod_in_attempt(1, 1).running()});
  const auto step_time = [&](int64_t step, int64_t now) {
    observed.progress = rank_status();
    observed.progress->step = step;
    observed.progress->updated_at = "2031-01-01T00:00:00Z";  // a wrong clock
    observed.now = at_second(now) + std::chrono::milliseconds(900);
    observed.job.status = refreshed(observed);
    return observed.job.status.progress->last_step_time;
  };
  EXPECT_EQ(step_time(10, 100), at_second(100));
  EXPECT_EQ(step_time(10, 200), at_second(100));
  EXPECT_EQ(step_time(11, 300), at_second(300));
  EXPECT_EQ(step_time(5, 400), at_second(400)) << "a return to a checkpoint counts as progress";
  observed.progress->attempt = 0;
  observed.progress->step = 77;
  observed.now = at_second(500);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(400)) << "progress of another attempt is ignored";
}

TEST(Status, LastStepTimeStartsWithFirstReportOfAttempt) {
  Job job = JobBuilder().nodes(1).phase(Phase::kRestarting, 1);
  job.status.progress = api::Progress{900, 1000, 800, "90%", 0.5, 100, std::nullopt, at_second(30), at_second(31)};
  Observed observed = seen(job, {pod_in_attempt(0, 1).scheduled()});
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(31));
  observed.pods = {pod_in_attempt(0, 1).running()};
  Observed reported_early = observed;
  reported_early.progress = rank_status();
  reported_early.step_received_at = at_second(50);
  EXPECT_EQ(refreshed(reported_early).progress->last_step_time, at_second(60)) << "other pods had not started";
  observed.job.status = refreshed(observed);
  EXPECT_EQ(observed.job.status.progress->last_step_time, std::nullopt);
  EXPECT_EQ(observed.job.status.progress->step, 900);
  observed.now = at_second(5000);
  observed.progress = rank_status();
  observed.progress->step = 900;  // from a checkpoint of the last step
  observed.step_received_at = at_second(4990);
  EXPECT_EQ(refreshed(observed).progress->last_step_time, at_second(4990));
  observed.progress->phase = "start";  // of a launcher, after a restart in the pod
  EXPECT_EQ(refreshed(observed).progress->last_step_time, std::nullopt);
}

TEST(Status, RecordsLastAttempts) {
  api::Status status;
  status.attempt_start_time = at_second(5);
  Observed observed = seen(JobBuilder().nodes(1), {});
  observed.now = at_second(7);
  for (int attempt = 0; attempt < 15; ++attempt) {
    api::AttemptRecord record;
    record.attempt = attempt;
    record_attempt(observed, classify_objects(observed), status, record);
  }
  ASSERT_EQ(status.attempts.size(), api::kMaxAttemptRecords);
  EXPECT_EQ(status.attempts.front().attempt, 5);
  EXPECT_EQ(status.attempts.back().attempt, 14);
  EXPECT_EQ(status.attempts.back().start_time, at_second(5));
  EXPECT_EQ(status.attempts.back().end_time, at_second(7));
}

// What the end of an attempt cost: the record of attempt 0, which ended at second 20 at step 900.
TEST(Status, RecordsLostStepsAndSeconds) {
  Job job = JobBuilder().nodes(1).phase(Phase::kRestarting, 1);
  api::Progress& progress = job.status.progress.emplace();
  progress.step = 900;
  progress.checkpoint_step = 800;
  const auto record = [](const Job& of, const std::optional<RankStatus>& reported, Pod pod) {
    Observed observed = seen(of, {std::move(pod)});
    observed.progress = reported;
    api::Status status = of.status;
    record_attempt(observed, classify_objects(observed), status, {});
    return status.attempts.back();
  };
  RankStatus reported;
  reported.attempt = 1;
  EXPECT_EQ(record(job, reported, pod_in_attempt(0, 1).ended(1)).step, 900);
  EXPECT_EQ(record(job, reported, pod_in_attempt(0, 1).ended(1)).steps_lost, 100);
  reported.attempt = 0;
  EXPECT_EQ(record(job, reported, pod_in_attempt(0, 1).ended(1)).step, std::nullopt) << "the step of another attempt";
  Job unsaved = job;
  unsaved.status.progress->checkpoint_step.reset();
  reported.attempt = 1;
  EXPECT_EQ(record(unsaved, reported, pod_in_attempt(0, 1).ended(1)).steps_lost, std::nullopt);

  api::AttemptRecord ended;
  ended.end_time = at_second(20);
  ended.step = 900;
  job.status.attempts = {ended};
  Observed observed = seen(job, {pod_in_attempt(0, 1).running()});  // at second 60
  EXPECT_EQ(refreshed(observed).attempts[0].seconds_lost, std::nullopt) << "the steps are being repeated";
  observed.progress.emplace().attempt = 1;
  observed.progress->step = 901;
  observed.step_received_at = at_second(55);
  EXPECT_EQ(refreshed(observed).attempts[0].seconds_lost, 35);
  job.status.attempts[0].step.reset();
  observed = seen(job, {pod_in_attempt(0, 1).running()});
  EXPECT_EQ(refreshed(observed).attempts[0].seconds_lost, 40) << "without steps, until the pods have started";
  job.status.phase = Phase::kRunning;
  EXPECT_EQ(refreshed(seen(job, {pod_in_attempt(0, 1).running()})).attempts[0].seconds_lost, std::nullopt)
      << "a record of an earlier version";
}

}  // namespace
}  // namespace oarlock::test
