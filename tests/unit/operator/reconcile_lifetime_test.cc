// Policies of lifetime.h: suspension, deadline, time to live, cleanup, deletion.
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReconcileLifetime, SkipsDeletingJob) {
  const Plan plan = reconcile(seen(JobBuilder().being_deleted().phase(Phase::kRunning), {pod(0, 0).ended(1)}));
  EXPECT_EQ(plan.state, PlanState::kComplete);
  EXPECT_THAT(plan.actions, IsEmpty());
}

TEST(ReconcileLifetime, ResumesAsNewAttemptWithoutCountingRestart) {
  Observed observed = seen(JobBuilder().suspend().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(1)});
  const Plan suspended = reconcile(observed);
  EXPECT_THAT(names(suspended), ElementsAre("PatchStatus Suspended 0", "EmitEvent Suspended", "DeletePod bert-0-0"));
  EXPECT_EQ(status_after(observed, suspended).restarts.total, 0);

  observed = after(observed, suspended);
  observed.pods = {pod(0, 0).running().deleting(), pod(0, 1).ended(1)};
  const Plan waits = reconcile(observed);
  EXPECT_EQ(waits.state, PlanState::kProgress) << "the failed pod is counted";
  observed = after(observed, waits);
  EXPECT_EQ(reconcile(observed).state, PlanState::kWait);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());

  observed.job.spec.suspend = false;
  const Plan resumed = reconcile(observed);
  EXPECT_THAT(names(resumed),
              ElementsAre("PatchStatus Pending 1", "EmitEvent Resumed", "CreatePod bert-1-0", "CreatePod bert-1-1"));
  EXPECT_EQ(status_after(observed, resumed).restarts.total, 0);
  EXPECT_EQ(status_after(observed, resumed).attempt_start_time, at_second(60));
  EXPECT_EQ(status_after(observed, resumed).start_time, at_second(1));
  expect_settled(observed, resumed);
}

TEST(ReconcileLifetime, SuspendedIsTrueOncePodsAreGone) {
  Observed observed = seen(JobBuilder().nodes(1).suspend().phase(Phase::kRunning), {pod(0, 0).running()});
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  EXPECT_FALSE(condition_of(observed.job.status, Phase::kSuspended).status);
  EXPECT_EQ(condition_of(observed.job.status, Phase::kSuspended).reason, "StoppingPods");

  observed.pods = {pod(0, 0).running().deleting_until(at_second(90))};
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(40));
  Observed resumed = observed;
  resumed.job.spec.suspend = false;
  EXPECT_THAT(only<CreatePod>(reconcile(resumed)), IsEmpty()) << "the pod still saves a checkpoint";
  EXPECT_EQ(reconcile(resumed).requeue_after, std::chrono::seconds(40));
  EXPECT_EQ(status_after(resumed, reconcile(resumed)).restarts.total, 0);

  for (const bool is_gone : {true, false}) {  // or the grace period has passed, as on a node that does not respond
    Observed ended = observed;
    if (is_gone) ended.pods.clear();
    ended.now = at_second(is_gone ? 70 : 100);
    const Plan plan = reconcile(ended);
    EXPECT_THAT(names(plan), ElementsAre("PatchStatus Suspended 0"));
    EXPECT_TRUE(condition_of(status_after(ended, plan), Phase::kSuspended).status);
    EXPECT_EQ(condition_of(status_after(ended, plan), Phase::kSuspended).last_transition_time, ended.now);
    expect_settled(ended, plan);
    resumed.pods = ended.pods;
    resumed.now = ended.now;
    EXPECT_EQ(only<CreatePod>(reconcile(resumed)).at(0).name, "bert-1-0");
    EXPECT_EQ(condition_of(status_after(resumed, reconcile(resumed)), Phase::kSuspended).last_transition_time,
              ended.now)
        << "activeDeadlineSeconds counts from the resume";
  }
}

// The cache of the suspension, or of the resume, did not show the pod.
TEST(ReconcileLifetime, ResumedPodsWaitForPodsThatTheCacheDidNotShow) {
  for (const Phase phase : {Phase::kSuspended, Phase::kPending}) {
    Observed observed = seen(JobBuilder().nodes(1).phase(phase, phase == Phase::kPending ? 1 : 0),
                             {pod(0, 0).running().deleting_until(at_second(90))});
    const Plan plan = reconcile(observed);
    EXPECT_THAT(only<CreatePod>(plan), IsEmpty());
    EXPECT_EQ(plan.requeue_after, std::chrono::seconds(40));
    EXPECT_THAT(condition_of(status_after(observed, plan), Phase::kPending).message, HasSubstr("waiting for 1 pod"));
    observed = after(observed, plan);
    observed.pods.clear();
    EXPECT_EQ(only<CreatePod>(reconcile(observed)).at(0).name, "bert-1-0");
  }
}

TEST(ReconcileLifetime, ExitCodeZeroOnSuspensionDoesNotComplete) {
  Observed observed = seen(JobBuilder().nodes(1).suspend().phase(Phase::kRunning), {pod(0, 0).running()});
  observed = after(observed, reconcile(observed));
  for (const Pod& stopping : {pod(0, 0).running().deleting().build(), pod(0, 0).trainer_ended(0).deleting().build()}) {
    observed.pods = {stopping};
    observed = after(observed, reconcile(observed));
    EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  }
  observed.pods.clear();
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kSuspended);
  observed.job.spec.suspend = false;
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Pending 1", "EmitEvent Resumed", "CreatePod bert-1-0"));
}

// Like a Job, a job that has succeeded is Complete even if it should be suspended.
TEST(ReconcileLifetime, CompletesSuspendedJobWhosePodsSucceeded) {
  for (const Phase phase : {Phase::kNone, Phase::kPending, Phase::kRunning, Phase::kStalled, Phase::kSuspended}) {
    Observed observed = seen(JobBuilder().suspend().phase(phase), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
    if (phase == Phase::kNone) observed.job.status = {};
    const Plan plan = reconcile(observed);
    EXPECT_THAT(names(plan), ElementsAre("PatchStatus Complete 0", "EmitEvent Completed", "DeleteService bert"))
        << to_string(phase);
    EXPECT_THAT(reconcile(after(observed, plan)).actions, IsEmpty());
  }
  // If one pod has not succeeded, the success of the other is recorded, and a resume starts both again.
  Observed observed = seen(JobBuilder().suspend().phase(Phase::kRunning), {pod(0, 0).ended(0), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  observed.pods.clear();
  observed.job.spec.suspend = false;
  EXPECT_THAT(only<CreatePod>(reconcile(observed)), ::testing::SizeIs(2));
}

TEST(ReconcileLifetime, JobCreatedSuspendedStartsAsAttemptZero) {
  Observed observed = seen(JobBuilder().suspend());
  observed.services.clear();
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Suspended 0", "EmitEvent Suspended"));
  observed = after(observed, plan);
  EXPECT_FALSE(observed.job.status.start_time);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  observed.job.spec.suspend = false;
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Pending 0", "EmitEvent Resumed", "CreateService bert", "CreatePod bert-0-0",
                          "CreatePod bert-0-1"));
}

TEST(ReconcileLifetime, SuspensionBeforeFirstStatusCountsAsStarted) {
  Observed observed = seen(JobBuilder().suspend(), {pod(0, 0).running(), pod(0, 1)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Suspended 0", "EmitEvent Suspended", "DeletePod bert-0-0",
                                       "DeletePod bert-0-1"));
  observed = after(observed, plan);
  observed.job.spec.suspend = false;
  observed.pods.clear();
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1) << "the pods of attempt 0 may still exist";

  observed = seen(JobBuilder().suspend());
  observed = after(observed, reconcile(observed));
  observed.pods = {pod(0, 0).running()};  // the cache of the pods was stale
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.start_time, at_second(60));
}

// A job that was created suspended has the same attempt, and the same pod names, after its resume. A plan from before
// the resume must therefore fail because of the job's resourceVersion.
TEST(ReconcileLifetime, DeletesPodsOfSuspendedJobAfterFence) {
  Observed observed = seen(JobBuilder().suspend(), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(status_after(observed, reconcile(observed)), observed.job.status) << "the patch is only a fence";
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Suspended 0", "DeletePod bert-0-0", "DeletePod bert-0-1"));
}

TEST(ReconcileLifetime, EnforcesActiveDeadline) {
  Observed observed =
      seen(JobBuilder().phase(Phase::kRunning).deadline_seconds(60), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1)) << "it began at second 1, this is second 60";
  observed.now = at_second(61);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kComplete);
  EXPECT_THAT(names(plan),
              ElementsAre("PatchStatus Failed 0", "EmitEvent Failed", "DeletePod bert-0-0", "DeletePod bert-0-1"));
  EXPECT_EQ(condition_of(status_after(observed, plan), Phase::kFailed).reason, "DeadlineExceeded");
  EXPECT_EQ(status_after(observed, plan).restarts.total, 0);
  expect_settled(observed, plan);
}

TEST(ReconcileLifetime, DeadlineRestartsAtResume) {
  Observed observed = seen(JobBuilder().suspend().phase(Phase::kRunning).deadline_seconds(30));
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kSuspended) << "it was active for 59 s";
  observed = after(observed, reconcile(observed));
  observed.now = at_second(1000);
  EXPECT_EQ(reconcile(observed).requeue_after, std::nullopt);
  observed.job.spec.suspend = false;
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.phase, Phase::kPending);
  observed.now = at_second(1029);
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1));
  observed.now = at_second(1030);
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kFailed);
}

TEST(ReconcileLifetime, SuccessTakesPrecedenceOverDeadline) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRunning).deadline_seconds(10), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
}

TEST(ReconcileLifetime, DeletesExpiredJob) {
  for (const Phase phase : {Phase::kComplete, Phase::kFailed}) {
    Observed observed = seen(JobBuilder().phase(phase).ttl_seconds(60), {pod(0, 0).ended(0)});  // ended at second 2
    Plan plan = reconcile(observed);
    EXPECT_THAT(plan.actions, IsEmpty());
    EXPECT_EQ(plan.requeue_after, std::chrono::seconds(2));
    observed.now = at_second(62);
    plan = reconcile(observed);
    EXPECT_EQ(plan.state, PlanState::kComplete);
    ASSERT_THAT(names(plan), ElementsAre("DeleteJob bert"));
    EXPECT_EQ(only<DeleteJob>(plan).at(0).uid, kJobUid);
    EXPECT_EQ(only<DeleteJob>(plan).at(0).resource_version, "100") << "a concurrent edit takes precedence";
    observed.job.metadata.deletion_timestamp = at_second(62);
    EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  }
  Observed active =
      seen(JobBuilder().phase(Phase::kRunning).ttl_seconds(0), {pod(0, 0).running(), pod(0, 1).running()});
  EXPECT_THAT(only<DeleteJob>(reconcile(active)), IsEmpty());
}

TEST(ReconcileLifetime, FollowsCleanPodPolicy) {
  struct Row {
    api::CleanPodPolicy policy;
    std::vector<std::string> deleted;
  };
  for (const Row& row :
       {Row{.policy = api::CleanPodPolicy::kRunning, .deleted = {"DeletePod bert-0-0"}},
        Row{.policy = api::CleanPodPolicy::kAll, .deleted = {"DeletePod bert-0-0", "DeletePod bert-0-1"}},
        Row{.policy = api::CleanPodPolicy::kNone, .deleted = {}}}) {
    Observed observed = seen(JobBuilder().clean_pod_policy(row.policy).max_restarts(0).phase(Phase::kRunning),
                             {pod(0, 0).running(), pod(0, 1).ended(1)});
    const Plan plan = reconcile(observed);
    std::vector<std::string> expected = {"PatchStatus Failed 0", "EmitEvent Failed"};
    expected.insert(expected.end(), row.deleted.begin(), row.deleted.end());
    EXPECT_EQ(names(plan), expected);
    observed = after(observed, plan);
    EXPECT_EQ(names(reconcile(observed)), row.deleted) << "also after an interrupted plan";
  }
}

TEST(ReconcileLifetime, DeletesServiceOnceNoPodRuns) {
  for (const api::CleanPodPolicy policy : {api::CleanPodPolicy::kRunning, api::CleanPodPolicy::kAll}) {
    Observed observed = seen(JobBuilder().clean_pod_policy(policy).phase(Phase::kFailed));
    observed.services = {service_of(observed.job)};
    observed.pods = {pod(0, 0).running()};
    EXPECT_THAT(names(reconcile(observed)), ElementsAre("DeletePod bert-0-0"));
    observed.pods = {pod(0, 0).running().deleting()};
    EXPECT_THAT(names(reconcile(observed)), ElementsAre("DeleteService bert"))
        << "a pod on a dead node does not keep the Service";
    EXPECT_EQ(only<DeleteService>(reconcile(observed)).at(0).uid, "uid-of-service");
    observed.services.at(0).deleting = true;
    EXPECT_THAT(reconcile(observed).actions, IsEmpty());
    observed.services.at(0) = {"bert", "u", "another-owner"};
    EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  }
  Observed kept = seen(JobBuilder().clean_pod_policy(api::CleanPodPolicy::kNone).phase(Phase::kFailed));
  kept.services = {service_of(kept.job)};
  EXPECT_THAT(reconcile(kept).actions, IsEmpty());
}

TEST(ReconcileLifetime, DeletesPodsOfUnknownAttemptAtEnd) {
  EXPECT_THAT(names(reconcile(seen(JobBuilder().phase(Phase::kFailed), {pod(3, 0).running()}))),
              ElementsAre("DeletePod bert-3-0"));
}

}  // namespace
}  // namespace oarlock::test
