// Jobs whose pods run, but whose step does not change.
#include "operator/core/stall.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A running job of attempt 1 whose rank 0 completed step 7 at second 10 and is polled now.
Observed at_step_7(SystemTime now, Phase phase = Phase::kRunning) {
  Job job = JobBuilder().stall_seconds(60).phase(phase, 1);
  job.status.progress.emplace().step = 7;
  job.status.progress->last_step_time = at_second(10);
  Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).running()});
  observed.now = now;
  observed.progress.emplace().attempt = 1;
  observed.progress->step = 7;
  observed.progress->phase = "eval";
  observed.last_poll = StatusPoll{now, true, true};
  observed.job.status = refresh_status(observed, classify_objects(observed));  // counts and texts
  return observed;
}

TEST(ReconcileStall, StallsUntilStepChanges) {
  Observed observed = at_step_7(at_second(69));
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1));
  observed = at_step_7(at_second(70));
  Plan plan = reconcile(observed);
  ASSERT_THAT(names(plan), ElementsAre("PatchStatus Stalled 1", "EmitEvent Stalled"));
  EXPECT_EQ(only<EmitEvent>(plan).at(0).type, EmitEvent::Type::kWarning);
  EXPECT_FALSE(plan.requeue_after);
  observed = after(observed, plan);
  EXPECT_FALSE(condition_of(observed.job.status, Phase::kRunning).status);
  const api::Condition stalled = condition_of(observed.job.status, Phase::kStalled);
  EXPECT_EQ(stalled, (api::Condition{
                         "Stalled", true, "NoStep",
                         "no optimizer step since " + to_rfc3339(at_second(10)) + "; rank 0 is in phase eval at step 7",
                         at_second(70)}));

  observed.now = at_second(5000);
  observed.progress->phase = "train";
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "reported once";
  observed.progress.reset();
  observed.last_poll.reset();
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "a restarted operator reads the stall from the status";
  observed.progress.emplace().attempt = 0;
  observed.progress->step = 8;
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "steps of another attempt do not count";

  for (const int64_t step : {8, 3}) {  // forward, or back to a checkpoint
    observed.progress->attempt = 1;
    observed.progress->step = step;
    plan = reconcile(observed);
    ASSERT_THAT(names(plan), ElementsAre("PatchStatus Running 1", "EmitEvent Progressing"));
    EXPECT_EQ(only<EmitEvent>(plan).at(0).type, EmitEvent::Type::kNormal);
    EXPECT_EQ(plan.requeue_after, std::chrono::seconds(60));
    const api::Status next = status_after(observed, plan);
    EXPECT_EQ(condition_of(next, Phase::kRunning).reason, "Progressing");
    EXPECT_EQ(condition_of(next, Phase::kRunning).message,
              "rank 0 is at step " + std::to_string(step) + " since " + to_rfc3339(at_second(5000)));
    expect_settled(observed, plan);
  }
}

TEST(ReconcileStall, DoesNotStallBeforeRank0WasPolled) {
  Observed observed = at_step_7(at_second(500));
  // The operator was not running, or has not polled again: the steps of rank 0 since its last response are not known.
  for (const std::optional<StatusPoll>& poll :
       {std::optional<StatusPoll>(), std::optional(StatusPoll{at_second(69), true, true})}) {
    observed.last_poll = poll;
    EXPECT_THAT(names(reconcile(observed)), IsEmpty());
    EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1)) << "it is polled soon";
  }
  const auto message = [&] {
    const api::Status next = status_after(observed, reconcile(observed));
    return next.phase == Phase::kStalled ? condition_of(next, Phase::kStalled).message : "";
  };
  observed.last_poll = StatusPoll{at_second(70), true, true};
  EXPECT_THAT(message(), HasSubstr("; rank 0 is in phase eval at step 7"));
  observed.last_poll = StatusPoll{at_second(70), false};
  EXPECT_THAT(message(), HasSubstr("; rank 0, last at step 7, does not respond"));
  observed.last_poll.reset();
  observed.pods[0] = pod(1, 0).ended(0);
  EXPECT_THAT(message(), HasSubstr("; rank 0 has ended, at step 7")) << "rank 0 cannot be polled any more";
}

TEST(ReconcileStall, JobWithoutStepsIsNeverStalled) {
  Observed observed = at_step_7(at_second(500));
  observed.progress.reset();
  observed.job.status.progress.reset();
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  EXPECT_FALSE(reconcile(observed).requeue_after);
}

TEST(ReconcileStall, TimeBeforeFirstStepOfAttemptDoesNotCount) {
  Observed observed = at_step_7(at_second(500));
  enter_phase(observed.job.status, Phase::kRestarting, "PodFailed", "m", at_second(400));
  observed.job.status.progress->last_step_time = at_second(10);
  observed.progress->attempt = 0;
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 1", "EmitEvent Running"));
  observed = after(observed, plan);
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(90)) << "startTimeoutSeconds";
  observed.now = at_second(589);
  observed.last_poll = StatusPoll{observed.now, false};
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "it loads its model";
  observed.last_poll->answered = true;
  observed.progress->attempt = 1;
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(60)) << "as in the first attempt";
  observed.now = at_second(649);
  observed.last_poll->sent_at = observed.now;
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kStalled);
}

TEST(ReconcileStall, TimeBeforeFirstStepAfterRestartInPodDoesNotCount) {
  Observed observed = at_step_7(at_second(70));
  observed.job.spec.stall_policy.action = api::StallAction::kRestart;
  observed = after(observed, reconcile(observed));
  ASSERT_EQ(observed.job.status.phase, Phase::kStalled);
  observed.progress->phase = "start";
  observed.launcher.emplace().attempt = 1;
  observed.launcher->in_pod_restarts = {.total = 1, .seconds = 1};
  observed.last_poll->sent_at = observed.now = at_second(80);
  const Plan plan = reconcile(observed);
  ASSERT_THAT(names(plan), ElementsAre("PatchStatus Running 1", "EmitEvent Progressing", "EmitEvent RestartedInPods"));
  observed = after(observed, plan);
  observed.last_poll->sent_at = observed.now = at_second(89);
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
}

// restartScope Rank: the other ranks wait for rank 0, whose process has started again in its pod.
TEST(ReconcileStall, TimeSinceTheLastStepCountsIfRank0StartsAgainAlone) {
  Observed observed = at_step_7(at_second(69));
  observed.progress->phase = "start";
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  observed = at_step_7(at_second(70));
  observed.progress->phase = "start";
  EXPECT_EQ(condition_of(status_after(observed, reconcile(observed)), Phase::kStalled).reason, "NoStep");
}

// A job that has stepped before and starts again: its pods all run since second 500.
Observed starting(SystemTime now) {
  Observed observed = at_step_7(at_second(500));
  enter_phase(observed.job.status, Phase::kRestarting, "PodFailed", "m", at_second(400));
  observed.progress->attempt = 0;
  observed = after(observed, reconcile(observed));
  observed.now = now;
  observed.last_poll = StatusPoll{.sent_at = now, .reachable = true};  // a launcher whose rank has not reported
  return observed;
}

TEST(ReconcileStall, StallsIfNoStepFollowsAStart) {
  EXPECT_THAT(names(reconcile(starting(at_second(589)))), IsEmpty());
  Observed observed = starting(at_second(590));
  EXPECT_EQ(stall_to_explain(observed), at_second(500));
  const Plan plan = reconcile(observed);
  ASSERT_THAT(names(plan), ElementsAre("PatchStatus Stalled 1", "EmitEvent Stalled"));
  EXPECT_EQ(condition_of(status_after(observed, plan), Phase::kStalled),
            (api::Condition{"Stalled", true, "NoFirstStep",
                            "no optimizer step since the start at " + to_rfc3339(at_second(500)) +
                                "; rank 0, last at step 7, has not reported since",
                            at_second(590)}));
  const Observed stalled = after(observed, plan);
  EXPECT_THAT(names(reconcile(stalled)), IsEmpty());
  Observed stepped = stalled;
  stepped.progress->attempt = 1;
  EXPECT_THAT(names(reconcile(stepped)), ElementsAre("PatchStatus Running 1", "EmitEvent Progressing"));
  Observed restarting = stalled;
  restarting.job.spec.stall_policy.action = api::StallAction::kRestart;
  EXPECT_EQ(status_after(restarting, reconcile(restarting)).phase, Phase::kRestarting);

  Observed silent = starting(at_second(5000));
  silent.last_poll->reachable = false;
  EXPECT_THAT(names(reconcile(silent)), IsEmpty()) << "it cannot be reached, and may step";
  EXPECT_EQ(reconcile(silent).requeue_after, std::chrono::seconds(30));
  Observed ended = starting(at_second(5000));
  ended.last_poll.reset();
  ended.pods[0] = pod(1, 0).ended(0);
  EXPECT_EQ(status_after(ended, reconcile(ended)).phase, Phase::kStalled) << "rank 0 cannot be polled any more";
  Observed unknown = starting(at_second(5000));
  unknown.job.status.progress->step = 0;
  EXPECT_THAT(names(reconcile(unknown)), IsEmpty()) << "its program may report no steps";
}

TEST(ReconcileStall, StallsIfNoStepFollowsAStartInPod) {
  Observed observed = at_step_7(at_second(70));
  observed.progress->phase = "start";
  observed.job.status.progress->last_step_time.reset();
  api::InPodRestarts restarts;
  restarts.attempt = 1;
  restarts.last_time = at_second(80);
  observed.job.status.in_pod_restarts = restarts;
  observed.last_poll->sent_at = observed.now = at_second(169);
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  observed.last_poll->sent_at = observed.now = at_second(170);
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(
      condition_of(next, Phase::kStalled).message,
      "no optimizer step since the start at " + to_rfc3339(at_second(80)) + "; rank 0 is in phase start at step 7");
}

TEST(ReconcileStall, TimeoutMayChangeWhileRunning) {
  Observed observed = at_step_7(at_second(69));
  observed.job.spec.stall_policy.timeout_seconds = 30;
  observed = after(observed, reconcile(observed));
  ASSERT_EQ(observed.job.status.phase, Phase::kStalled);
  observed.job.spec.stall_policy.timeout_seconds = 90;
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).phase, Phase::kRunning);
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(31));
}

TEST(ReconcileStall, NamesTheRankThatLags) {
  struct Case {
    const char* name;
    std::vector<StallReport> reports;
    std::string laggard;
  };
  const auto node = [](int node_rank, std::vector<RankActivity> ranks) {
    return StallReport{.node_rank = node_rank, .answered = true, .ranks = std::move(ranks)};
  };
  const auto at = [](int rank, int64_t step, std::string state = "") {
    return RankActivity{.rank = rank, .step = step, .program = "python3", .state = std::move(state)};
  };
  for (const Case& one : {
           Case{"no reports", {}, ""},
           Case{"no rank differs", {node(0, {at(0, 7)}), node(1, {at(1, 7)})}, ""},
           Case{"the smallest step",
                {node(0, {at(0, 7)}), node(1, {at(1, 6, "running")})},
                "; rank 1 on node node-1 is at step 6; its process python3 is running"},
           Case{"a stopped process comes first",
                {node(0, {at(0, 6)}), node(1, {at(1, 7, "stopped")})},
                "; rank 1 on node node-1 is at step 7; its process python3 is stopped"},
           Case{"a node that does not answer comes first",
                {node(0, {at(0, 6)}), StallReport{.node_rank = 1}},
                "; pod bert-1-1 on node node-1 does not respond"},
       }) {
    Observed observed = at_step_7(at_second(70));
    observed.pods[1].node_name = "node-1";
    observed.stall_reports = one.reports;
    const api::Status next = status_after(observed, reconcile(observed));
    EXPECT_EQ(condition_of(next, Phase::kStalled).message, "no optimizer step since " + to_rfc3339(at_second(10)) +
                                                               "; rank 0 is in phase eval at step 7" + one.laggard)
        << one.name;
  }
  Observed waiting = at_step_7(at_second(70));
  waiting.stall_reports.reset();
  EXPECT_THAT(names(reconcile(waiting)), IsEmpty());
  EXPECT_EQ(reconcile(waiting).requeue_after, std::chrono::seconds(1));
}

TEST(ReconcileStall, OnlyAStallThatIsNotReportedYetNeedsReports) {
  EXPECT_EQ(stall_to_explain(at_step_7(at_second(70))), at_second(10));
  EXPECT_EQ(stall_to_explain(at_step_7(at_second(69))), std::nullopt);
  EXPECT_EQ(stall_to_explain(at_step_7(at_second(70), Phase::kStalled)), std::nullopt);
  Observed observed = at_step_7(at_second(90));
  observed.progress->step = 8;  // the status is written later
  observed.step_received_at = at_second(30);
  observed.last_poll->sent_at = at_second(90);
  EXPECT_EQ(stall_to_explain(observed), at_second(30)) << "not an earlier stall";
  observed.last_poll->sent_at = at_second(89);
  EXPECT_EQ(stall_to_explain(observed), std::nullopt);
  observed.last_poll->sent_at = at_second(90);
  observed.job.status.progress->last_step_time.reset();  // the first step after a start
  EXPECT_EQ(stall_to_explain(observed), at_second(30));
}

TEST(ReconcileStall, RestartsTheGroupIfThePolicyRequiresIt) {
  Observed stalled = at_step_7(at_second(70), Phase::kRunning);
  stalled.job.spec.stall_policy.action = api::StallAction::kRestart;
  stalled.progress->checkpoint_step = 5;
  stalled = after(stalled, reconcile(stalled));
  ASSERT_EQ(stalled.job.status.phase, Phase::kStalled);
  const Plan plan = reconcile(stalled);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "EmitEvent Restarting", "DeletePod bert-1-0",
                                       "DeletePod bert-1-1"))
      << "ranks that respond may save a checkpoint";
  const api::Status next = status_after(stalled, plan);
  EXPECT_EQ(next.restarts.charged, 0);
  EXPECT_EQ(next.restarts.after_progress->count, 1);
  ASSERT_EQ(next.attempts.size(), 1U);
  EXPECT_EQ(next.attempts[0].reason, "Stalled");
  EXPECT_THAT(next.attempts[0].message, HasSubstr("rank 0 is in phase eval at step 7"));
  EXPECT_EQ(next.attempts[0].step, 7);
  EXPECT_EQ(next.attempts[0].steps_lost, std::nullopt) << "the ranks may save their state when they are stopped";

  Observed again = stalled;
  again.job.status.restarts.after_progress = next.restarts.after_progress;
  EXPECT_EQ(status_after(again, reconcile(again)).restarts.charged, 1) << "without a step since then";

  Observed used_up = stalled;
  used_up.job.spec.failure_policy.max_restarts = 0;
  EXPECT_EQ(status_after(used_up, reconcile(used_up)).phase, Phase::kFailed);

  Observed not_polled = stalled;  // a new operator process
  not_polled.last_poll.reset();
  EXPECT_THAT(names(reconcile(not_polled)), IsEmpty());
  EXPECT_TRUE(reconcile(not_polled).requeue_after) << "it is polled soon";
  Observed silent = stalled;  // it may be the network, or the first poll of a new operator process
  silent.last_poll->answered = false;
  EXPECT_THAT(names(reconcile(silent)), IsEmpty());
  silent.now = at_second(70 + 60);
  silent.last_poll = StatusPoll{at_second(129), false};
  EXPECT_THAT(names(reconcile(silent)), IsEmpty());
  silent.last_poll = StatusPoll{silent.now, false};
  EXPECT_EQ(status_after(silent, reconcile(silent)).phase, Phase::kRestarting);
  Observed finished = stalled;
  finished.pods[0] = pod(1, 0).ended(0);
  EXPECT_THAT(status_after(finished, reconcile(finished)).phase, Phase::kStalled) << "the others may still work";
  Observed stepped = stalled;
  stepped.progress->step = 8;
  EXPECT_EQ(status_after(stepped, reconcile(stepped)).phase, Phase::kRunning);
}

TEST(ReconcileStall, StalledJobFinishesRestartsAndSuspendsLikeRunning) {
  const Observed stalled = at_step_7(at_second(60), Phase::kStalled);
  const auto plan_with = [&](Pod second) {
    Observed observed = stalled;
    observed.pods[1] = std::move(second);
    return reconcile(observed);
  };
  EXPECT_THAT(names(plan_with(pod(1, 1).ended(1))),
              ElementsAre("PatchStatus Restarting 2", "EmitEvent Restarting", "DeletePod bert-1-0",
                          "CreatePod bert-2-0", "CreatePod bert-2-1"));
  Observed gone = stalled;
  gone.pods.pop_back();
  EXPECT_THAT(names(reconcile(gone)), ElementsAre("ConfirmPodAbsent bert-1-1", "PatchStatus Restarting 2",
                                                  "EmitEvent Restarting", "DeletePod bert-1-0"))
      << "the other pod may save a checkpoint";
  Observed done = stalled;
  done.pods = {pod(1, 0).ended(0), pod(1, 1).ended(0)};
  EXPECT_EQ(status_after(done, reconcile(done)).phase, Phase::kComplete);
  Observed suspended = stalled;
  suspended.job.spec.suspend = true;
  EXPECT_THAT(names(reconcile(suspended)), ElementsAre("PatchStatus Suspended 1", "EmitEvent Suspended",
                                                       "DeletePod bert-1-0", "DeletePod bert-1-1"));
  Observed late = stalled;
  late.job.spec.active_deadline_seconds = 10;
  EXPECT_EQ(status_after(late, reconcile(late)).phase, Phase::kFailed);
}

}  // namespace
}  // namespace oarlock::test
