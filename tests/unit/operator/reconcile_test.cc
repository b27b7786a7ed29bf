// The life of a job from its first pods to its completion, and its treatment of objects of other owners.
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Reconcile, CreatesServiceAndPodsOfNewJob) {
  Observed observed = seen(JobBuilder());
  observed.services.clear();
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kProgress);
  EXPECT_THAT(names(plan),
              ElementsAre("ConfirmJobUnchanged", "CreateService bert", "CreatePod bert-0-0", "CreatePod bert-0-1"))
      << "the pods precede the status";
  EXPECT_EQ(only<CreatePod>(plan).at(1), (CreatePod{"bert-0-1", 0, 1, false, 2}));
}

TEST(Reconcile, UntouchedJobNeedsNoFence) {
  Observed observed = seen(JobBuilder());
  observed.services.clear();
  observed.untouched = true;
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("CreateService bert", "CreatePod bert-0-0", "CreatePod bert-0-1"));
}

TEST(Reconcile, WritesFirstStatusAfterFirstPods) {
  Observed observed = seen(JobBuilder(), {pod(0, 0), pod(0, 1)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "EmitEvent Started"));
  EXPECT_EQ(status_after(observed, plan).start_time, at_second(60));
  expect_settled(observed, plan);
  const auto start_by = [&](SystemTime created) {
    observed.services.at(0).created = created;
    return status_after(observed, reconcile(observed)).start_time;
  };
  EXPECT_EQ(start_by(at_second(40)), at_second(40)) << "the pods were created together with the Service";
  EXPECT_EQ(start_by(at_second(70)), at_second(60)) << "the clock of the API server is ahead";
  EXPECT_EQ(start_by(at_second(-3600)), at_second(0)) << "the clock of the API server is behind";

  observed.pods = {pod(0, 0).running(), pod(0, 1).running()};
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Running 0", "EmitEvent Started", "EmitEvent Running"));
  observed.pods = {pod(0, 0).ended(0), pod(0, 1).ended(0)};
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Complete 0", "EmitEvent Completed", "DeleteService bert"));
  observed.pods = {pod(0, 0).ended(1), pod(0, 1).running()};
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Restarting 1", "EmitEvent Restarting", "DeletePod bert-0-1",
                          "CreatePod bert-1-0", "CreatePod bert-1-1"));
}

TEST(Reconcile, ReportsRejectedCreateBeforeRetry) {
  Observed observed = seen(JobBuilder(), {pod(0, 0)});
  observed.last_error = "exceeded quota";
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "CreatePod bert-0-1", "EmitEvent Started"));
  EXPECT_EQ(condition_of(status_after(observed, plan), Phase::kPending).reason, "CreateRefused");
}

TEST(Reconcile, WarnsAboutOverriddenVariables) {
  const Job job = JobBuilder().pod_template(
      R"({"spec":{"containers":[{"name":"trainer","image":"i","env":[{"name":"WORLD_SIZE","value":"9"},{"name":"MASTER_ADDR","value":"x"}]}]}})");
  const std::vector<EmitEvent> events = only<EmitEvent>(reconcile(seen(job, {pod(0, 0), pod(0, 1)})));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].type, EmitEvent::Type::kWarning);
  EXPECT_EQ(events[1].reason, "EnvironmentOverridden");
  EXPECT_THAT(events[1].message, HasSubstr("WORLD_SIZE, MASTER_ADDR"));
}

TEST(Reconcile, CompletesInterruptedCreation) {
  Observed observed = seen(JobBuilder(), {pod(0, 0)});
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("ConfirmJobUnchanged", "CreatePod bert-0-1"));

  observed.pods = {pod(0, 0), pod(0, 1)};
  observed = after(observed, reconcile(observed));
  observed.pods = {pod(0, 0)};
  observed = after(observed, reconcile(observed));
  observed.services.clear();
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "CreateService bert", "CreatePod bert-0-1"));
  EXPECT_EQ(only<PatchStatus>(plan).at(0).status, observed.job.status)
      << "a fence: nothing is created from a stale cache";
}

TEST(Reconcile, WaitsForPods) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).scheduled(), pod(0, 1)});
  observed = after(observed, reconcile(observed));
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kWait);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.nodes.scheduled, 1);
}

TEST(Reconcile, EntersRunningOnceAllPodsStarted) {
  const Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0", "EmitEvent Running"));
  EXPECT_EQ(status_after(observed, plan).nodes.summary, "2/2");
  EXPECT_EQ(reconcile(after(observed, plan)),
            (Plan{PlanState::kWait, {}, std::nullopt, "nothing to do in phase Running"}));
}

TEST(Reconcile, CompletesOnceAllPodsSucceeded) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kComplete);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Complete 0", "EmitEvent Completed", "DeleteService bert"));
  EXPECT_EQ(status_after(observed, plan).nodes, (api::NodeCounts{2, 2, 0, 2, 0, "0/2"}));
  observed = after(observed, plan);
  EXPECT_EQ(reconcile(observed), (Plan{PlanState::kComplete, {}, std::nullopt, "the job has ended"}));
}

TEST(Reconcile, CompletesFromPending) {
  const Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
  EXPECT_EQ(names(reconcile(observed)).at(0), "PatchStatus Complete 0");
}

TEST(Reconcile, DeletesPodsWithRunningSidecar) {
  Observed observed = seen(JobBuilder().nodes(1).phase(Phase::kRunning), {pod(0, 0).trainer_ended(0)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Complete 0", "EmitEvent Completed"));
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(10));
  observed = after(observed, plan);
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(10));
  observed.now = at_second(71);
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("DeletePod bert-0-0"));
}

TEST(Reconcile, TerminalIsPermanent) {
  for (const Phase phase : {Phase::kComplete, Phase::kFailed}) {
    for (const bool is_suspended : {false, true}) {
      Job job = JobBuilder().phase(phase).suspend(is_suspended);
      EXPECT_THAT(reconcile(seen(job)).actions, IsEmpty());
      EXPECT_THAT(reconcile(seen(job, {pod(0, 0).ended(1), pod(0, 1).ended(0)})).actions, IsEmpty());
      EXPECT_THAT(names(reconcile(seen(job, {pod(0, 0).running(), pod(0, 1).running().deleting()}))),
                  ElementsAre("DeletePod bert-0-0"));
      job.metadata.generation = 2;
      const Plan plan = reconcile(seen(job));
      api::Status expected = job.status;
      expected.observed_generation = 2;
      EXPECT_EQ(only<PatchStatus>(plan).at(0).status, expected);
    }
  }
}

TEST(Reconcile, ConfirmsJobThatIsOlderThanItsPods) {
  const Plan plan = reconcile(seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).ended(1), pod(1, 0).running()}));
  EXPECT_EQ(names(plan).at(0), "ConfirmJobUnchanged") << "a plan from a stale cache ends here";
  EXPECT_TRUE(plan.requeue_after);
}

TEST(Reconcile, AdoptsAttemptMissingInStatus) {
  for (const Phase phase : {Phase::kNone, Phase::kPending, Phase::kRunning, Phase::kRestarting}) {
    Observed observed = seen(JobBuilder().phase(phase), {pod(0, 0).ended(1), pod(2, 0).running(), pod(1, 1).ended(1)});
    if (phase == Phase::kNone) observed.job.status = {};
    const Plan plan = reconcile(observed);
    ASSERT_THAT(names(plan), ::testing::SizeIs(3)) << to_string(phase);
    EXPECT_EQ(status_after(observed, plan).attempt, 2);
    EXPECT_EQ(status_after(observed, plan).restarts.total, 0);
    observed = after(observed, plan);
    EXPECT_EQ(only<CreatePod>(reconcile(observed)).at(0).name, "bert-2-1") << to_string(phase);
    observed.pods.emplace_back(pod(2, 1).running());
    EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning) << to_string(phase);
  }
  // A number that would overflow is not an attempt.
  EXPECT_THAT(only<ConfirmJobUnchanged>(
                  reconcile(seen(JobBuilder().phase(Phase::kRunning),
                                 {pod(0, 0).running(), pod(0, 1).running(), pod(2147483647, 0).running()}))),
              IsEmpty());
}

TEST(Reconcile, ReportsNameConflict) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).owner("other").running(), pod(0, 1)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kBlocked);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "EmitEvent NameTaken"));
  EXPECT_THAT(condition_of(status_after(observed, plan), Phase::kPending).message,
              HasSubstr("pod bert-0-0 exists and does not belong to this job"));
  EXPECT_TRUE(plan.requeue_after);
  observed = after(observed, plan);
  EXPECT_EQ(reconcile(observed).state, PlanState::kBlocked);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty()) << "reported once";
  observed.pods = {pod(0, 1)};
  EXPECT_THAT(only<CreatePod>(reconcile(observed)).at(0).name, "bert-0-0");
}

// kubectl replace --force: the objects of the deleted job exist until the garbage collector removes them.
TEST(Reconcile, WaitsForObjectsOfDeletedJobWithSameName) {
  Observed service = seen(JobBuilder());
  service.services.at(0).owner_uid = "earlier";
  for (Observed observed : {seen(JobBuilder(), {pod(0, 0).owner_job("earlier").running()}),
                            seen(JobBuilder(), {pod(0, 0).owner("anybody").running().deleting()}), service}) {
    const Plan plan = reconcile(observed);
    EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0"));
    EXPECT_EQ(condition_of(status_after(observed, plan), Phase::kPending).reason, "WaitingForNames");
    EXPECT_EQ(plan.requeue_after, std::chrono::seconds(1));
    observed = after(observed, plan);
    EXPECT_EQ(reconcile(observed).state, PlanState::kWait);
    EXPECT_THAT(reconcile(observed).actions, IsEmpty());
    observed.pods.clear();
    observed.services = {service_of(observed.job)};
    EXPECT_THAT(only<CreatePod>(reconcile(observed)), ::testing::SizeIs(2));
  }
}

TEST(Reconcile, ForeignServiceBlocksJob) {
  Observed observed = seen(JobBuilder());
  observed.services.at(0).owner_uid = "other";
  observed.services.at(0).owner_is_job = false;
  EXPECT_EQ(reconcile(observed).state, PlanState::kBlocked);
}

TEST(Reconcile, RejectsInvalidSpec) {
  Job job = JobBuilder();
  for (const char* broken : {"not json", "[]", R"({"spec":7})", R"({"spec":{"containers":[{"name":"main"}]}})",
                             R"({"spec":{"containers":[7]}})"}) {
    job.spec.pod_template = broken;
    const Plan plan = reconcile(seen(job));
    EXPECT_EQ(plan.state, PlanState::kBlocked) << broken;
    EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "EmitEvent InvalidSpec")) << broken;
  }
}

TEST(Reconcile, RecreatesDeletedService) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  observed.services.clear();
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Running 0", "CreateService bert"));
}

TEST(Reconcile, UpdatesObservedGeneration) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  observed.job.metadata.generation = 2;
  EXPECT_EQ(status_after(observed, reconcile(observed)).observed_generation, 2);
}

TEST(Reconcile, SkipsJobManagedElsewhere) {
  const Observed observed = seen(JobBuilder().managed_by("kueue.x-k8s.io/multikueue"),
                                 {pod(0, 0).ended(1), pod(0, 1).owner("other").running()});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kComplete);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_THAT(plan.reason, HasSubstr("kueue.x-k8s.io/multikueue"));
  EXPECT_THAT(reconcile(seen(JobBuilder().managed_by("oarlock.dev/operator"))).actions, ::testing::Not(IsEmpty()));
}

TEST(Reconcile, CompletesWithSuccessPolicyRank0) {
  Observed observed = seen(JobBuilder().success_policy(api::SuccessPolicy::kRank0).phase(Phase::kRunning),
                           {pod(0, 0).ended(0), pod(0, 1).running()});
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Complete 0", "EmitEvent Completed", "DeletePod bert-0-1"));
  observed.pods = {pod(0, 0).ended(0), pod(0, 1).ended(1)};
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
  observed.pods = {pod(0, 0).running(), pod(0, 1).ended(0)};
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  observed.job.spec.success_policy = api::SuccessPolicy::kAllRanks;
  observed.pods = {pod(0, 0).ended(0), pod(0, 1).running()};
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
}

TEST(Reconcile, IsTotal) {
  Observed nothing;
  EXPECT_NO_THROW(reconcile(nothing));
  for (const int nodes : {-1, 0, 1, 5}) {
    for (const Phase phase : {Phase::kNone, Phase::kPending, Phase::kRunning, Phase::kStalled, Phase::kRestarting,
                              Phase::kSuspended, Phase::kComplete, Phase::kFailed}) {
      for (const bool is_suspended : {false, true}) {
        Job job = JobBuilder("\xff bad").nodes(nodes).suspend(is_suspended);
        job.status.phase = phase;
        job.status.attempt = 1;
        Pod odd = PodBuilder("\xff bad", 1, 0).ended(1, "\xff\xfe");
        odd.trainer->finished_at.reset();
        Observed observed =
            seen(job, {odd, odd, PodBuilder("\xff bad", 0, 0).running(), PodBuilder("\xff bad", 1, 7).evicted("\xc3")});
        observed.services.push_back(service_of(job));
        EXPECT_NO_THROW(reconcile(observed)) << nodes << " " << to_string(phase);
        EXPECT_EQ(reconcile(observed), reconcile(observed));
      }
    }
  }
}

}  // namespace
}  // namespace oarlock::test
