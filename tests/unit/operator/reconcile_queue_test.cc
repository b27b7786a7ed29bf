// Jobs that Kueue queues: no pod without admission, evictions, partial admission, and the release of quota.
#include "operator/core/queue.h"

#include "operator/core/elastic.h"
#include "operator/core/lifetime.h"
#include "operator/core/workload.h"
#include "tests/unit/operator/queued_jobs.h"

namespace oarlock::test {
namespace {

using Change = UpdateWorkload::Change;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ReconcileQueue, TheStatusPrecedesTheWorkloadAndAdmissionThePods) {
  Observed observed = with_workload(JobBuilder().queue("team"), {}, {});
  observed.services.clear();
  const Plan first = reconcile(observed);
  const std::string name = workload_name(observed.job);
  EXPECT_THAT(names(first),
              ElementsAre("PatchStatus Pending 0", "CreateService bert", "CreateWorkload " + name, "EmitEvent Queued"));
  const api::Status next = status_after(observed, first);
  ASSERT_TRUE(next.queue);
  EXPECT_EQ(next.queue->name, "team");
  EXPECT_EQ(next.queue->since, at_second(60));
  EXPECT_EQ(next.start_time, std::nullopt) << "queueing is not running";
  EXPECT_EQ(condition_of(next, Phase::kPending).reason, kQueued);
  EXPECT_EQ(only<CreateWorkload>(first).at(0), (CreateWorkload{name, "team", 2, {}}));

  observed = with_workload(after(observed, first).job, {}, waiting(observed.job));
  const Plan wait = reconcile(observed);
  EXPECT_THAT(names(wait), ElementsAre("PatchStatus Pending 0"));
  EXPECT_EQ(condition_of(status_after(observed, wait), Phase::kPending).message,
            "queue team: WaitingForQuota: insufficient unused quota for cpu in flavor spot, 1 more needed");
  expect_settled(observed, wait);

  observed = with_workload(after(observed, wait).job, {}, admitted(observed.job, 2));
  observed.now = at_second(90);
  const Plan start = reconcile(observed);
  EXPECT_THAT(names(start),
              ElementsAre("PatchStatus Pending 0", confirm(observed.job), "CreatePod bert-0-0", "CreatePod bert-0-1"));
  EXPECT_EQ(only<CreatePod>(start).at(0).admission, admitted(observed.job, 2).admission);
  const api::Status started = status_after(observed, start);
  EXPECT_EQ(started.start_time, at_second(90));
  EXPECT_EQ(started.queue->since, at_second(90));
  EXPECT_EQ(started.queue->cluster_queue, "cluster");
  EXPECT_THAT(started.queue->flavors, ElementsAre("spot"));
  EXPECT_EQ(started.queue->nodes, 2);
}

TEST(ReconcileQueue, AJobWithoutTheLabelIsNotQueued) {
  Observed observed = seen(JobBuilder());
  observed.untouched = true;
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("CreatePod bert-0-0", "CreatePod bert-0-1"));
  EXPECT_EQ(only<CreatePod>(reconcile(observed)).at(0).admission, std::nullopt);
}

// The label has no effect on a job that has started without it, and its removal none on one that has started with it.
TEST(ReconcileQueue, TheDecisionIsThatOfTheStart) {
  const Observed late =
      with_workload(JobBuilder().queue("team").phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).running()}, {});
  EXPECT_THAT(only<CreateWorkload>(reconcile(late)), IsEmpty());
  Job job = queued(Phase::kPending);
  job.metadata.queue.clear();
  const Plan plan = reconcile(with_workload(job, {}, {}));
  EXPECT_EQ(only<CreateWorkload>(plan).at(0).queue, "team");
  EXPECT_THAT(only<CreatePod>(plan), IsEmpty());
}

TEST(ReconcileQueue, AJobWithoutKueueReportsItAndARunningOneContinues) {
  Observed observed = seen(queued(Phase::kPending));
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "Kueue's objects are being read";
  EXPECT_EQ(reconcile(observed).requeue_after, seconds(1));
  observed.workloads_error = "the server could not find the requested resource";
  const Plan plan = reconcile(observed);
  EXPECT_THAT(only<CreatePod>(plan), IsEmpty());
  EXPECT_EQ(plan.requeue_after, seconds(30));
  const api::Condition condition = condition_of(status_after(observed, plan), Phase::kPending);
  EXPECT_EQ(condition.reason, kQueueUnavailable);
  EXPECT_THAT(condition.message, HasSubstr("could not find the requested resource"));
  EXPECT_THAT(condition.message, HasSubstr("kueue.x-k8s.io/queue-name"));

  Observed running = seen(queued(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).running()});
  running.workloads_error = observed.workloads_error;
  EXPECT_EQ(status_after(running, reconcile(running)).phase, Phase::kRunning);
  EXPECT_THAT(only<DeletePod>(reconcile(running)), IsEmpty());
}

TEST(ReconcileQueue, AnEvictionStopsThePodsAndThenReleasesTheQuota) {
  const Job job = queued(Phase::kRunning, JobBuilder().max_restarts(0));
  Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, evicted(job));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("ConfirmWorkloadUnchanged " + workload_name(job), "PatchStatus Restarting 1",
                                       "EmitEvent QueueEvicted", "DeletePod bert-0-0", "DeletePod bert-0-1"));
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.restarts.charged, 0);
  EXPECT_EQ(next.attempts.at(0).reason, "QueueEvicted");
  EXPECT_TRUE(next.attempts.at(0).stopped) << "the pods save a checkpoint";
  EXPECT_EQ(next.attempts.at(0).message,
            "the queue team does not admit the job any more: Preempted: Preempted to accommodate a workload of higher "
            "priority");
  EXPECT_STREQ(eviction_reason(next.attempts.at(0)), "Preempted");

  observed = after(observed, plan);
  for (Pod& one : observed.pods) {
    one.deleting = true;
    one.grace_ends_at = observed.now + seconds(30);
  }
  const Plan stopping = reconcile(observed);
  EXPECT_THAT(only<UpdateWorkload>(stopping), IsEmpty()) << "the pods use the quota";
  EXPECT_EQ(stopping.requeue_after, seconds(40));

  observed = without_pods(observed, stopping);
  const Plan release = reconcile(observed);
  EXPECT_THAT(names(release), Contains("UpdateWorkload Release " + workload_name(job)));
  EXPECT_THAT(only<CreatePod>(release), IsEmpty());

  observed = after(observed, release);
  observed.workloads->front().has_quota = observed.workloads->front().admitted = false;
  const Plan wait = reconcile(observed);
  EXPECT_THAT(only<UpdateWorkload>(wait), IsEmpty());
  observed = with_workload(after(observed, wait).job, {}, admitted(job, 2));
  EXPECT_THAT(names(reconcile(observed)), Contains("CreatePod bert-1-0")) << "without a delay";
}

TEST(ReconcileQueue, AnEvictionBeforeThePodsHaveStartedEndsTheAttemptToo) {
  const Job job = queued(Phase::kPending);
  const Observed observed = with_workload(job, {pod(0, 0), pod(0, 1).unschedulable("no node")}, evicted(job));
  EXPECT_THAT(names(reconcile(observed)), Contains("PatchStatus Restarting 1"));
  const Observed without = with_workload(job, {}, evicted(job));
  EXPECT_THAT(names(reconcile(without)), Contains("UpdateWorkload Release " + workload_name(job)));
}

TEST(ReconcileQueue, AJobThatIsDoneIsNotEvicted) {
  const Job job = queued(Phase::kRunning);
  const Observed observed = with_workload(job, {pod(0, 0).ended(0), pod(0, 1).ended(0)}, evicted(job));
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
}

// Kueue's uninstallation deletes the Workloads first. The request shows whether the API still exists.
TEST(ReconcileQueue, ADeletedWorkloadIsCreatedAgainBeforeAnythingStops) {
  const Job job = queued(Phase::kRunning);
  Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, {});
  EXPECT_THAT(names(reconcile(observed)), Contains("CreateWorkload " + workload_name(job)));
  EXPECT_THAT(only<DeletePod>(reconcile(observed)), IsEmpty());
  observed.workloads->push_back(waiting(job));
  EXPECT_THAT(names(reconcile(observed)), Contains("DeletePod bert-0-0"));
}

TEST(ReconcileQueue, ARestartAfterAFailureKeepsTheAdmission) {
  const Job job = queued(Phase::kRunning, JobBuilder().backoff_seconds(0));
  const Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).ended(1)}, admitted(job, 2));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("CreatePod bert-1-0"));
  EXPECT_THAT(only<UpdateWorkload>(plan), IsEmpty());
  EXPECT_EQ(status_after(observed, plan).restarts.charged, 1);
}

TEST(ReconcileQueue, ReadinessIsReportedOnce) {
  const Job job = queued(Phase::kPending);
  Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, admitted(job, 2));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("UpdateWorkload Ready " + workload_name(job)));
  EXPECT_EQ(plan.requeue_after, seconds(30)) << "the report may have failed";
  observed = after(observed, plan);
  observed.workloads->front().pods_ready = true;
  EXPECT_THAT(only<UpdateWorkload>(reconcile(observed)), IsEmpty());
  observed.job.status.phase = Phase::kRestarting;
  ++observed.job.status.attempt;
  observed.pods.clear();
  EXPECT_THAT(names(reconcile(observed)), Contains("UpdateWorkload NotReady " + workload_name(job)));
}

TEST(ReconcileQueue, ASuspendedJobGivesTheQuotaBackWhenItsPodsHaveEnded) {
  const Job job = queued(Phase::kRunning, JobBuilder().suspend());
  Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, admitted(job, 2));
  Plan plan = reconcile(observed);
  EXPECT_THAT(only<DeleteWorkload>(plan), IsEmpty());
  observed = without_pods(observed, plan);
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Suspended 0", "DeleteWorkload " + workload_name(job)));
  observed = after(observed, plan);
  observed.workloads->clear();
  observed = after(observed, reconcile(observed));
  EXPECT_THAT(names(reconcile(observed)), IsEmpty());
  EXPECT_EQ(observed.job.status.queue->cluster_queue, "");
  observed.job.spec.suspend = false;
  observed.job.metadata.queue = "other";
  const Plan resume = reconcile(observed);
  EXPECT_EQ(only<CreateWorkload>(resume).at(0).queue, "other");
  EXPECT_THAT(only<CreatePod>(resume), IsEmpty());
}

// The template may have changed while the job was suspended.
TEST(ReconcileQueue, AResumeRequestsTheQuotaAgain) {
  const Job job = queued(Phase::kSuspended);
  const Plan plan = reconcile(with_workload(job, {}, admitted(job, 2)));
  EXPECT_THAT(names(plan), ElementsAre("ConfirmJobUnchanged", "DeleteWorkload " + workload_name(job)));
}

TEST(ReconcileQueue, AFinishedJobReleasesItsQuota) {
  for (const Phase phase : {Phase::kComplete, Phase::kFailed}) {
    const Job job = queued(phase);
    Observed observed = with_workload(job, {pod(0, 0).running()}, admitted(job, 2));
    observed.pods[0].deleting = true;
    observed.pods[0].grace_ends_at = observed.now + seconds(5);
    EXPECT_THAT(only<UpdateWorkload>(reconcile(observed)), IsEmpty());
    EXPECT_EQ(reconcile(observed).requeue_after, seconds(15));
    observed.pods.clear();
    const Plan plan = reconcile(observed);
    EXPECT_THAT(names(plan), Contains(std::string("UpdateWorkload ") +
                                      (phase == Phase::kFailed ? "Fail " : "Succeed ") + workload_name(job)));
    observed.workloads->front().finished = true;
    EXPECT_THAT(only<UpdateWorkload>(reconcile(observed)), IsEmpty());
  }
}

TEST(ReconcileQueue, AWaitingWorkloadFollowsTheJobAndAnAdmittedOneStays) {
  Job job = queued(Phase::kPending);
  job.metadata.queue = "other";
  EXPECT_THAT(names(reconcile(with_workload(job, {}, waiting(job)))), Contains("DeleteWorkload " + workload_name(job)));
  EXPECT_THAT(only<DeleteWorkload>(reconcile(with_workload(job, {}, admitted(job, 2)))), IsEmpty());
  Workload finished = admitted(job, 2);
  finished.finished = true;
  EXPECT_THAT(names(reconcile(with_workload(job, {}, finished))), Contains("DeleteWorkload " + workload_name(job)));
}

TEST(ReconcileQueue, AnotherOwnersWorkloadIsIgnored) {
  const Job job = queued(Phase::kPending);
  Workload foreign = admitted(job, 2);
  foreign.owner_uid = "other";
  EXPECT_THAT(only<CreatePod>(reconcile(with_workload(job, {}, foreign))), IsEmpty());
  Workload renamed = admitted(job, 2);
  renamed.name = "made-by-a-tenant";
  EXPECT_THAT(only<CreatePod>(reconcile(with_workload(job, {}, renamed))), IsEmpty());
}

TEST(ReconcileQueue, ADeletedOrFinishedWorkloadIsTheReason) {
  const Job job = queued(Phase::kRunning);
  Workload workload = admitted(job, 2);
  workload.reason = "Admitted";
  for (const auto& [end, reason] : {std::pair(&Workload::deleting, "its Workload is being deleted"),
                                    std::pair(&Workload::finished, "its Workload is marked as finished")}) {
    Workload ended = workload;
    ended.*end = true;
    const Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, ended);
    const api::Status next = status_after(observed, reconcile(observed));
    EXPECT_THAT(condition_of(next, Phase::kRestarting).message, HasSubstr(reason));
  }
}

TEST(ReconcileQueue, PodsOfAnotherAdmissionStop) {
  Job job = queued(Phase::kRunning);
  job.status.queue->cluster_queue = "cluster";
  job.status.queue->flavors = {"on-demand"};
  const Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, admitted(job, 2));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("DeletePod bert-0-0"));
  EXPECT_EQ(status_after(observed, plan).attempts.at(0).message,
            "the queue team admits the job with other flavors: spot");
  EXPECT_THAT(status_after(observed, plan).queue->flavors, ElementsAre("spot"));
}

// A sidecar keeps the pod of a rank that has ended; the time until it is deleted counts from the eviction.
TEST(ReconcileQueue, AnEvictedPodWhoseTrainerHasEndedIsDeletedToo) {
  const Job job = queued(Phase::kRunning);
  Observed observed = with_workload(job, {pod(0, 0).running().trainer_ended(0), pod(0, 1).running()}, evicted(job));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), Not(Contains("DeletePod bert-0-0")));
  observed = after(observed, plan);
  observed.pods.pop_back();
  observed.now += seconds(11);
  EXPECT_THAT(names(reconcile(observed)), Contains("DeletePod bert-0-0"));
}

TEST(ReconcileQueue, AForgedWorkloadDoesNotHideTheRealOne) {
  const Job job = queued(Phase::kRunning);
  Observed observed = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, evicted(job));
  Workload forged = admitted(job, 2);
  forged.name = "forged";
  observed.workloads->insert(observed.workloads->begin(), forged);
  EXPECT_THAT(names(reconcile(observed)), Contains("PatchStatus Restarting 1"));
}

TEST(ReconcileQueue, AnEvictedJobThatIsBlockedReleasesItsQuota) {
  const Job job = queued(Phase::kPending);
  Observed observed = with_workload(job, {}, evicted(job));
  observed.services.front().owner_uid = "other";
  EXPECT_THAT(names(reconcile(observed)), Contains("UpdateWorkload Release " + workload_name(job)));
}

// The CRD of an earlier version does not have status.queue.
TEST(ReconcileQueue, AStatusWithoutTheQueueStartsNoPods) {
  Job job = queued(Phase::kPending);
  job.status.queue.reset();
  job.status.start_time.reset();
  job.status.attempt_start_time.reset();
  EXPECT_THAT(names(reconcile(with_workload(job, {}, {}))), Contains("CreateWorkload " + workload_name(job)));
  Job running = job;
  running.status = JobBuilder().phase(Phase::kRunning).build().status;
  const std::vector<Pod> pods = {pod(0, 0).running(), pod(0, 1).running()};
  EXPECT_THAT(names(reconcile(with_workload(running, pods, evicted(running)))), Contains("PatchStatus Restarting 1"));
}

// As after a restart of the operator: without the Workloads it is not known whether the job is admitted.
TEST(ReconcileQueue, AStatusWithoutTheQueueStartsNoPodsBeforeTheWorkloadsAreRead) {
  const Job job = JobBuilder().queue("team").phase(Phase::kRestarting, 1);
  Observed observed = seen(job);
  const Plan reading = reconcile(observed);
  EXPECT_THAT(reading.actions, IsEmpty());
  EXPECT_EQ(reading.requeue_after, seconds(1));
  observed = with_workload(job, {}, evicted(job));
  EXPECT_THAT(only<CreatePod>(reconcile(observed)), IsEmpty());
  observed.workloads.reset();
  observed.workloads_error = "the server could not find the requested resource";
  EXPECT_EQ(only<CreatePod>(reconcile(observed)).size(), 2u) << "the label came after the start";
}

TEST(ReconcileQueue, PodsThatAFinishedJobKeepsAreStopped) {
  const Job job = queued(Phase::kComplete, JobBuilder().clean_pod_policy(api::CleanPodPolicy::kNone));
  Observed observed = with_workload(job, {pod(0, 0).ended(0), pod(0, 1).running()}, admitted(job, 2));
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("DeletePod bert-0-1"));
  observed.pods.pop_back();
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("UpdateWorkload Succeed " + workload_name(job)));
}

TEST(ReconcileQueue, TheDeadlineDoesNotCountQueueing) {
  Job job = queued(Phase::kRestarting, JobBuilder().deadline_seconds(100));
  job.status.start_time = at_second(0);
  EXPECT_EQ(deadline(job), std::nullopt);
  job.status.queue->cluster_queue = "cluster";
  job.status.queue->since = at_second(50);
  EXPECT_EQ(deadline(job), at_second(150));
}

}  // namespace
}  // namespace oarlock::test
