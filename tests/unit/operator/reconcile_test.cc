// One test for each row of docs/operator-states.md, and for each place where the operator may die or see an old view.
#include "operator/core/reconcile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "operator/core/desired.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PodBuilder pod(int attempt, int node_rank) { return {"bert", attempt, node_rank}; }

// The world after the plan was done: its status, and nothing else changed.
Observed after(const Observed& observed, const Plan& plan) {
  Observed out = observed;
  out.job.status = status_after(observed, plan);
  return out;
}

// With the plan's status in place, the same world gives the same status.
void expect_settled(const Observed& observed, const Plan& plan) {
  const Observed then = after(observed, plan);
  EXPECT_EQ(status_after(then, reconcile(then)), then.job.status) << "the status flaps";
}

TEST(Reconcile, StartsAJob) {
  Observed observed = seen(JobBuilder());
  observed.services.clear();
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kProgress);
  EXPECT_THAT(names(plan),
              ElementsAre("ConfirmJobUnchanged", "CreateService bert", "CreatePod bert-0-0", "CreatePod bert-0-1"))
      << "the pods come before the status";
  const auto body = nlohmann::json::parse(only<CreatePod>(plan)[1].body);
  EXPECT_EQ(body, PodFactory(observed.job, 0).pod(1));
  EXPECT_EQ(only<CreatePod>(plan)[1].node_rank, 1);
}

TEST(Reconcile, AJobThatNoOperatorCanHaveActedOnNeedsNoFence) {
  Observed observed = seen(JobBuilder());
  observed.services.clear();
  observed.untouched = true;
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("CreateService bert", "CreatePod bert-0-0", "CreatePod bert-0-1"));
}

TEST(Reconcile, TheFirstStatusFollowsTheFirstPods) {
  Observed observed = seen(JobBuilder(), {pod(0, 0), pod(0, 1)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "EmitEvent Started"));
  EXPECT_EQ(status_after(observed, plan).start_time, at_second(60));
  expect_settled(observed, plan);
  const auto start_by = [&](SystemTime created) {
    observed.services[0].created = created;
    return status_after(observed, reconcile(observed)).start_time;
  };
  EXPECT_EQ(start_by(at_second(40)), at_second(40)) << "when the Service was made, so were the pods";
  EXPECT_EQ(start_by(at_second(70)), at_second(60)) << "the server's clock is ahead";
  EXPECT_EQ(start_by(at_second(-3600)), at_second(0)) << "the server's clock is behind";

  observed.pods = {pod(0, 0).running(), pod(0, 1).running()};
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Running 0", "EmitEvent Started", "EmitEvent Running"));
  observed.pods = {pod(0, 0).ended(0), pod(0, 1).ended(0)};
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Complete 0", "EmitEvent Completed"));
  observed.pods = {pod(0, 0).ended(1), pod(0, 1).running()};
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Restarting 1", "EmitEvent Restarting", "DeletePod bert-0-1",
                          "CreatePod bert-1-0", "CreatePod bert-1-1"));
}

TEST(Reconcile, ARefusedCreationIsToldBeforeItIsTriedAgain) {
  Observed observed = seen(JobBuilder(), {pod(0, 0)});
  observed.last_error = "exceeded quota";
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "CreatePod bert-0-1", "EmitEvent Started"));
  EXPECT_EQ(find_condition(status_after(observed, plan), Phase::kPending)->reason, "CreateRefused");
}

TEST(Reconcile, WarnsOfOverriddenVariables) {
  const Job job = JobBuilder().pod_template(
      R"({"spec":{"containers":[{"name":"trainer","env":[{"name":"WORLD_SIZE","value":"9"},{"name":"MASTER_ADDR","value":"x"}]}]}})");
  const std::vector<EmitEvent> events = only<EmitEvent>(reconcile(seen(job, {pod(0, 0), pod(0, 1)})));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].type, EmitEvent::Type::kWarning);
  EXPECT_EQ(events[1].reason, "EnvironmentOverridden");
  EXPECT_THAT(events[1].message, HasSubstr("WORLD_SIZE, MASTER_ADDR"));
}

TEST(Reconcile, FinishesACreationThatACrashCutShort) {
  Observed observed = seen(JobBuilder(), {pod(0, 0)});
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("ConfirmJobUnchanged", "CreatePod bert-0-1"));

  observed.pods = {pod(0, 0), pod(0, 1)};
  observed = after(observed, reconcile(observed));
  observed.pods = {pod(0, 0)};
  observed = after(observed, reconcile(observed));
  observed.services.clear();
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "CreateService bert", "CreatePod bert-0-1"));
  EXPECT_EQ(only<PatchStatus>(plan)[0].status, observed.job.status)
      << "a fence: nothing is created from an old view of the job";
}

TEST(Reconcile, WaitsForPods) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).scheduled(), pod(0, 1)});
  observed = after(observed, reconcile(observed));
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kWait);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.nodes.scheduled, 1);
}

TEST(Reconcile, Runs) {
  const Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0", "EmitEvent Running"));
  EXPECT_EQ(status_after(observed, plan).nodes.summary, "2/2");
  EXPECT_EQ(reconcile(after(observed, plan)),
            (Plan{Verdict::kWait, {}, std::nullopt, "nothing to do in phase Running"}));
}

TEST(Reconcile, RestartsTheWholeGroup) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(137)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kProgress);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 1", "EmitEvent Restarting", "DeletePod bert-0-0",
                                       "CreatePod bert-1-0", "CreatePod bert-1-1"))
      << "the count is kept before anything is done, and the pod that failed keeps its log";
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.restarts, (api::Restarts{1, 1, {{"PodFailed", 1}}}));
  EXPECT_EQ(next.nodes, (api::NodeCounts{2, 0, 0, 0, 0, "0/2"}));
  ASSERT_EQ(next.attempts.size(), 1U);
  EXPECT_EQ(next.attempts[0].pod, "bert-0-1");
  EXPECT_EQ(next.attempts[0].exit_code, 137);
  EXPECT_EQ(only<DeletePod>(plan)[0].uid, "uid-of-bert-0-0");
  EXPECT_THAT(only<EmitEvent>(plan)[0].message, HasSubstr("restart 1 of 3 as attempt 1: pod bert-0-1"));
  EXPECT_EQ(only<EmitEvent>(plan)[0].pod, "bert-0-1");
  expect_settled(observed, plan);
}

TEST(Reconcile, ARestartThatDiedAfterTheCountGoesOnWithoutCountingAgain) {
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

TEST(Reconcile, ADeadNodeDoesNotHoldUpTheNextAttempt) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRestarting, 1),
                                 {pod(0, 0).running().deleting(), pod(1, 0).running(), pod(1, 1).running()});
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Running 1", "EmitEvent Running"));
}

TEST(Reconcile, ALostPodIsLookedForBeforeItCounts) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running()});
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("ConfirmPodAbsent bert-0-1", "PatchStatus Restarting 1", "EmitEvent Restarting",
                          "DeletePod bert-0-0", "CreatePod bert-1-0", "CreatePod bert-1-1"));
}

TEST(Reconcile, KeepsTheEndedPodsOfTheLastAttemptOnly) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRestarting, 2),
           {pod(0, 0).ended(1), pod(1, 0).ended(1), pod(1, 1).ended(76), pod(2, 0).running(), pod(2, 1).running()});
  const std::vector<DeletePod> deleted = only<DeletePod>(reconcile(observed));
  ASSERT_EQ(deleted.size(), 1U);
  EXPECT_EQ(deleted[0].name, "bert-0-0");
}

TEST(Reconcile, APodThatIsJustEndingIsNotDeletedUnderItsLog) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).trainer_ended(1)});
  const Plan plan = reconcile(observed);
  ASSERT_EQ(only<DeletePod>(plan).size(), 1U);
  EXPECT_EQ(only<DeletePod>(plan)[0].name, "bert-0-0");
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(10));
  observed = after(observed, plan);
  observed.pods = {pod(0, 1).trainer_ended(1), pod(1, 0).running(), pod(1, 1).running()};
  observed.now = at_second(66);
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(4));
  observed.now = at_second(70);
  EXPECT_EQ(only<DeletePod>(reconcile(observed)).at(0).name, "bert-0-1") << "a sidecar goes on and holds the node";
}

TEST(Reconcile, FailsWhenRestartsAreUsedUp) {
  const Observed observed = seen(JobBuilder().max_restarts(1).phase(Phase::kRunning, 1).restarts(1),
                                 {pod(1, 0).running(), pod(1, 1).ended(1)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kComplete);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Failed 1", "EmitEvent Failed", "DeletePod bert-1-0"));
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.restarts.total, 1);
  EXPECT_EQ(next.completion_time, at_second(60));
  EXPECT_EQ(find_condition(next, Phase::kFailed)->reason, "MaxRestartsExceeded");
  EXPECT_EQ(only<DeletePod>(plan)[0].resource_version, "200") << "a pod that ends now keeps its log";
}

TEST(Reconcile, FailsAtOnceOnAPermanentError) {
  const Observed observed = seen(JobBuilder().phase(Phase::kRestarting), {pod(0, 0).running(), pod(0, 1).ended(78)});
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Failed 0", "EmitEvent Failed", "DeletePod bert-0-0"));
}

TEST(Reconcile, Completes) {
  Observed observed = seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kComplete);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Complete 0", "EmitEvent Completed"));
  EXPECT_EQ(status_after(observed, plan).nodes, (api::NodeCounts{2, 2, 0, 2, 0, "2/2"}));
  observed = after(observed, plan);
  EXPECT_EQ(reconcile(observed), (Plan{Verdict::kComplete, {}, std::nullopt, "the job has ended"}));
}

TEST(Reconcile, CompletesFromPendingWhenAllWasQuick) {
  const Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
  EXPECT_EQ(names(reconcile(observed)).at(0), "PatchStatus Complete 0");
}

TEST(Reconcile, ASidecarDoesNotOutliveTheJob) {
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

TEST(Reconcile, LeavesAJobThatIsBeingDeletedToTheGarbageCollector) {
  const Plan plan = reconcile(seen(JobBuilder().being_deleted().phase(Phase::kRunning), {pod(0, 0).ended(1)}));
  EXPECT_EQ(plan.verdict, Verdict::kComplete);
  EXPECT_THAT(plan.actions, IsEmpty());
}

TEST(Reconcile, SuspendsAndResumesAsANewAttemptThatIsNoRestart) {
  Observed observed = seen(JobBuilder().suspend().phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(1)});
  const Plan suspended = reconcile(observed);
  EXPECT_THAT(names(suspended), ElementsAre("PatchStatus Suspended 0", "EmitEvent Suspended", "DeletePod bert-0-0"));
  EXPECT_EQ(status_after(observed, suspended).restarts.total, 0);

  observed = after(observed, suspended);
  observed.pods = {pod(0, 0).running().deleting(), pod(0, 1).ended(1)};
  const Plan waits = reconcile(observed);
  EXPECT_EQ(waits.verdict, Verdict::kProgress) << "the pod that failed is counted";
  observed = after(observed, waits);
  EXPECT_EQ(reconcile(observed).verdict, Verdict::kWait);
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

TEST(Reconcile, AJobThatIsBornSuspendedCreatesNothingAndStartsAsAttemptZero) {
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

TEST(Reconcile, AJobThatIsSuspendedBeforeItsFirstStatusHasStarted) {
  Observed observed = seen(JobBuilder().suspend(), {pod(0, 0).running(), pod(0, 1)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Suspended 0", "EmitEvent Suspended", "DeletePod bert-0-0",
                                       "DeletePod bert-0-1"));
  observed = after(observed, plan);
  observed.job.spec.suspend = false;
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1) << "the pods of attempt 0 may still be there";

  observed = seen(JobBuilder().suspend());
  observed = after(observed, reconcile(observed));
  observed.pods = {pod(0, 0).running()};  // the cache of the pods was behind
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.start_time, at_second(60));
}

TEST(Reconcile, DistrustsAViewOfTheJobThatIsOlderThanItsPods) {
  const Plan plan = reconcile(seen(JobBuilder().phase(Phase::kRunning), {pod(0, 0).ended(1), pod(1, 0).running()}));
  EXPECT_EQ(plan.verdict, Verdict::kWait);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_TRUE(plan.requeue_after);
}

TEST(Reconcile, SaysWhoseNameIsTaken) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).owner("other").running(), pod(0, 1)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kBlocked);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "EmitEvent NameTaken"));
  EXPECT_THAT(find_condition(status_after(observed, plan), Phase::kPending)->message,
              HasSubstr("pod bert-0-0 exists and does not belong to this job"));
  EXPECT_TRUE(plan.requeue_after);
  observed = after(observed, plan);
  EXPECT_EQ(reconcile(observed).verdict, Verdict::kBlocked);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty()) << "said once";
  observed.pods = {pod(0, 1)};
  EXPECT_THAT(only<CreatePod>(reconcile(observed)).at(0).name, "bert-0-0");
}

TEST(Reconcile, WaitsForTheGarbageOfAnEarlierJobOfThatName) {
  const Plan plan = reconcile(seen(JobBuilder(), {pod(0, 0).owner("earlier").running().deleting()}));
  EXPECT_EQ(plan.verdict, Verdict::kWait);
  EXPECT_THAT(plan.actions, IsEmpty());
}

TEST(Reconcile, AForeignServiceBlocks) {
  Observed observed = seen(JobBuilder());
  observed.services[0].owner_uid = "other";
  EXPECT_EQ(reconcile(observed).verdict, Verdict::kBlocked);
}

TEST(Reconcile, RefusesASpecThatCannotWork) {
  Job job = JobBuilder();
  for (const char* broken : {"", "not json", "{}", "[]", R"({"spec":{}})",
                             R"({"spec":{"containers":[{"name":"main"}]}})", R"({"spec":{"containers":[7]}})"}) {
    job.spec.pod_template = broken;
    const Plan plan = reconcile(seen(job));
    EXPECT_EQ(plan.verdict, Verdict::kBlocked) << broken;
    EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0", "EmitEvent InvalidSpec")) << broken;
  }
}

TEST(Reconcile, PutsBackAServiceThatSomebodyDeleted) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  observed.services.clear();
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Running 0", "CreateService bert"));
}

TEST(Reconcile, FollowsTheGeneration) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  observed.job.metadata.generation = 2;
  EXPECT_EQ(status_after(observed, reconcile(observed)).observed_generation, 2);
}

TEST(Reconcile, LeavesAJobOfAnotherManagerAlone) {
  const Observed observed = seen(JobBuilder().managed_by("kueue.x-k8s.io/multikueue"),
                                 {pod(0, 0).ended(1), pod(0, 1).owner("other").running()});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kComplete);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_THAT(plan.reason, HasSubstr("kueue.x-k8s.io/multikueue"));
  EXPECT_THAT(reconcile(seen(JobBuilder().managed_by("oarlock.dev/operator"))).actions, ::testing::Not(IsEmpty()));
}

TEST(Reconcile, FailsAJobThatIsActiveForTooLong) {
  Observed observed =
      seen(JobBuilder().phase(Phase::kRunning).deadline_seconds(60), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1)) << "it began at second 1, this is second 60";
  observed.now = at_second(61);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.verdict, Verdict::kComplete);
  EXPECT_THAT(names(plan),
              ElementsAre("PatchStatus Failed 0", "EmitEvent Failed", "DeletePod bert-0-0", "DeletePod bert-0-1"));
  EXPECT_EQ(find_condition(status_after(observed, plan), Phase::kFailed)->reason, "DeadlineExceeded");
  EXPECT_EQ(status_after(observed, plan).restarts.total, 0);
  expect_settled(observed, plan);
}

TEST(Reconcile, TheDeadlineRunsAnewFromAResumeAndNotWhileSuspended) {
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

TEST(Reconcile, SuccessBeatsTheDeadline) {
  const Observed observed =
      seen(JobBuilder().phase(Phase::kRunning).deadline_seconds(10), {pod(0, 0).ended(0), pod(0, 1).ended(0)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
}

TEST(Reconcile, DeletesAJobWhenItsTimeToLiveIsOver) {
  for (const Phase phase : {Phase::kComplete, Phase::kFailed}) {
    Observed observed = seen(JobBuilder().phase(phase).ttl_seconds(60), {pod(0, 0).ended(0)});  // ended at second 2
    Plan plan = reconcile(observed);
    EXPECT_THAT(plan.actions, IsEmpty());
    EXPECT_EQ(plan.requeue_after, std::chrono::seconds(2));
    observed.now = at_second(62);
    plan = reconcile(observed);
    EXPECT_EQ(plan.verdict, Verdict::kComplete);
    ASSERT_THAT(names(plan), ElementsAre("DeleteJob bert"));
    EXPECT_EQ(only<DeleteJob>(plan)[0].uid, kJobUid);
    EXPECT_EQ(only<DeleteJob>(plan)[0].resource_version, "100") << "an edit at the last moment counts";
    observed.job.metadata.deletion_timestamp = at_second(62);
    EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  }
  Observed active =
      seen(JobBuilder().phase(Phase::kRunning).ttl_seconds(0), {pod(0, 0).running(), pod(0, 1).running()});
  EXPECT_THAT(only<DeleteJob>(reconcile(active)), IsEmpty());
}

TEST(Reconcile, CleansPodsAsThePolicySays) {
  struct Row {
    api::CleanPodPolicy policy;
    std::vector<std::string> deleted;
  };
  for (const Row& row : {Row{api::CleanPodPolicy::kRunning, {"DeletePod bert-0-0"}},
                         Row{api::CleanPodPolicy::kAll, {"DeletePod bert-0-0", "DeletePod bert-0-1"}},
                         Row{api::CleanPodPolicy::kNone, {}}}) {
    Observed observed = seen(JobBuilder().clean_pod_policy(row.policy).max_restarts(0).phase(Phase::kRunning),
                             {pod(0, 0).running(), pod(0, 1).ended(1)});
    const Plan plan = reconcile(observed);
    std::vector<std::string> expected = {"PatchStatus Failed 0", "EmitEvent Failed"};
    expected.insert(expected.end(), row.deleted.begin(), row.deleted.end());
    EXPECT_EQ(names(plan), expected);
    observed = after(observed, plan);
    EXPECT_EQ(names(reconcile(observed)), row.deleted) << "also where the plan was cut short";
  }
}

TEST(Reconcile, Rank0AloneCanMakeTheJobComplete) {
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

TEST(Reconcile, AnIgnoredExitCountsAsDone) {
  const api::FailureRule ignore{
      api::FailureAction::kIgnore, api::ExitCodeMatch{api::ExitCodeOperator::kIn, {3}}, {}, {}};
  Observed observed = seen(JobBuilder().rule(ignore).phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).ended(3)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  observed.pods[0] = pod(0, 0).ended(0);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).phase, Phase::kComplete);
  EXPECT_THAT(plan.reason, HasSubstr("all 2 pods ended, 1 of them with an exit code that failurePolicy.rules ignores"));
}

TEST(Reconcile, ADisruptionRestartsWithoutCounting) {
  const Observed observed =
      seen(JobBuilder().max_restarts(0).phase(Phase::kRunning),
           {pod(0, 0).running(), pod(0, 1).running().deleting().disrupted("PreemptionByScheduler")});
  const Plan plan = reconcile(observed);
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.phase, Phase::kRestarting);
  EXPECT_EQ(next.restarts, (api::Restarts{1, 0, {{"Disrupted", 1}}}));
  EXPECT_THAT(only<EmitEvent>(plan)[0].message, HasSubstr("a restart that does not count as attempt 1"));
}

// A job of attempt 1 that runs, and whose rank 0 did step 7 at second 10 and is asked now.
Observed at_step_7(SystemTime now, Phase phase = Phase::kRunning) {
  Job job = JobBuilder().stall_seconds(60).phase(phase, 1);
  job.status.progress.emplace().step = 7;
  job.status.progress->last_step_time = at_second(10);
  Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).running()});
  observed.now = now;
  observed.progress.emplace().attempt = 1;
  observed.progress->step = 7;
  observed.progress->phase = "eval";
  observed.asked = Question{now, true};
  observed.job.status = refresh(observed, split(observed));  // counts and texts
  return observed;
}

TEST(Reconcile, AJobWhoseStepStandsStillIsStalledUntilItMoves) {
  Observed observed = at_step_7(at_second(69));
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1));
  observed = at_step_7(at_second(70));
  Plan plan = reconcile(observed);
  ASSERT_THAT(names(plan), ElementsAre("PatchStatus Stalled 1", "EmitEvent Stalled"));
  EXPECT_EQ(only<EmitEvent>(plan)[0].type, EmitEvent::Type::kWarning);
  EXPECT_FALSE(plan.requeue_after);
  observed = after(observed, plan);
  EXPECT_FALSE(find_condition(observed.job.status, Phase::kRunning)->status);
  const api::Condition stalled = *find_condition(observed.job.status, Phase::kStalled);
  EXPECT_EQ(stalled, (api::Condition{
                         "Stalled", true, "NoStep",
                         "no optimizer step since " + to_rfc3339(at_second(10)) + "; rank 0 is in phase eval at step 7",
                         at_second(70)}));

  observed.now = at_second(5000);
  observed.progress->phase = "train";
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "it is said once";
  observed.progress.reset();
  observed.asked.reset();
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "an operator that has just started knows it from the status";
  observed.progress.emplace().attempt = 0;
  observed.progress->step = 8;
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "the step of another attempt is none";

  for (const int64_t step : {8, 3}) {  // on, or back to a checkpoint
    observed.progress->attempt = 1;
    observed.progress->step = step;
    plan = reconcile(observed);
    ASSERT_THAT(names(plan), ElementsAre("PatchStatus Running 1", "EmitEvent Progressing"));
    EXPECT_EQ(only<EmitEvent>(plan)[0].type, EmitEvent::Type::kNormal);
    EXPECT_EQ(plan.requeue_after, std::chrono::seconds(60));
    const api::Status next = status_after(observed, plan);
    EXPECT_EQ(find_condition(next, Phase::kRunning)->reason, "Progressing");
    EXPECT_EQ(find_condition(next, Phase::kRunning)->message,
              "rank 0 is at step " + std::to_string(step) + " since " + to_rfc3339(at_second(5000)));
    expect_settled(observed, plan);
  }
}

TEST(Reconcile, NobodyIsStalledBeforeRank0HadItsSay) {
  Observed observed = at_step_7(at_second(500));
  // The operator was away, or its turn to ask has not come: what rank 0 did since the last answer is not known.
  for (const std::optional<Question>& asked :
       {std::optional<Question>(), std::optional(Question{at_second(69), true})}) {
    observed.asked = asked;
    EXPECT_THAT(names(reconcile(observed)), IsEmpty());
    EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(1)) << "it will be asked soon";
  }
  const auto message = [&] {
    const api::Status next = status_after(observed, reconcile(observed));
    return next.phase == Phase::kStalled ? find_condition(next, Phase::kStalled)->message : "";
  };
  observed.asked = Question{at_second(70), true};
  EXPECT_THAT(message(), HasSubstr("; rank 0 is in phase eval at step 7"));
  observed.asked->answered = false;
  EXPECT_THAT(message(), HasSubstr("; rank 0, last at step 7, does not answer"));
  observed.asked.reset();
  observed.pods[0] = pod(1, 0).ended(0);
  EXPECT_THAT(message(), HasSubstr("; rank 0 has ended, at step 7")) << "there is nobody to ask";
}

TEST(Reconcile, AJobThatTellsNoStepsIsNeverStalled) {
  Observed observed = at_step_7(at_second(500));
  observed.progress.reset();
  observed.job.status.progress.reset();
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  EXPECT_FALSE(reconcile(observed).requeue_after);
}

TEST(Reconcile, TheTimeBetweenTwoAttemptsIsNoStall) {
  Observed observed = at_step_7(at_second(500));
  enter(observed.job.status, Phase::kRestarting, "PodFailed", "m", at_second(400));
  observed.job.status.progress->last_step_time = at_second(10);
  observed.progress->attempt = 0;
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 1", "EmitEvent Running"));
  observed = after(observed, plan);
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  EXPECT_EQ(reconcile(observed).requeue_after, std::chrono::seconds(60));
  observed.now = at_second(560);
  observed.asked = Question{observed.now, false};
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kStalled) << "it hangs before its first word";
}

TEST(Reconcile, TheStallsTimeMayChangeWhileTheJobRuns) {
  Observed observed = at_step_7(at_second(69));
  observed.job.spec.stall_policy.timeout_seconds = 30;
  observed = after(observed, reconcile(observed));
  ASSERT_EQ(observed.job.status.phase, Phase::kStalled);
  observed.job.spec.stall_policy.timeout_seconds = 90;
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).phase, Phase::kRunning);
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(31));
}

TEST(Reconcile, AStalledJobEndsRestartsAndStopsAsOneThatRuns) {
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
  EXPECT_THAT(names(reconcile(gone)),
              ElementsAre("ConfirmPodAbsent bert-1-1", "PatchStatus Restarting 2", "EmitEvent Restarting",
                          "DeletePod bert-1-0", "CreatePod bert-2-0", "CreatePod bert-2-1"));
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

// Attempts 0 and 1 failed within a second; this is attempt 2, whose failure was seen at second 59.
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

TEST(Reconcile, AGroupThatFailsAgainAndAgainWaitsBeforeItStartsAnew) {
  Observed observed = failed_twice(10);
  Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "DeletePod bert-1-0")) << "peers end at once";
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(9));
  observed = after(observed, plan);
  EXPECT_THAT(find_condition(observed.job.status, Phase::kRestarting)->message,
              HasSubstr("the next start is at " + to_rfc3339(at_second(69))));
  observed.pods.clear();
  observed.now = at_second(68);
  plan = reconcile(observed);
  EXPECT_THAT(plan.actions, IsEmpty()) << "nothing is written while it waits";
  EXPECT_EQ(plan.requeue_after, std::chrono::seconds(1));
  observed.now = at_second(69);
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "CreatePod bert-2-0", "CreatePod bert-2-1"));
  expect_settled(observed, plan);
  EXPECT_EQ(only<CreatePod>(reconcile(failed_twice(0))).size(), 2U);
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
        observed.services.push_back(observed.services[0]);
        EXPECT_NO_THROW(reconcile(observed)) << nodes << " " << to_string(phase);
        EXPECT_EQ(reconcile(observed), reconcile(observed));
      }
    }
  }
}

}  // namespace
}  // namespace oarlock::test
