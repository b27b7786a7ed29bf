// MultiKueue: the manager cluster requests quota and creates no pods; the worker cluster uses the Workload that Kueue
// has created for the copy of the job.
#include "operator/core/queue.h"
#include "operator/core/workload.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Workload workload_of(const Job& job) {
  Workload out{
      .name = workload_name(job), .uid = "w", .resource_version = "7", .owner_uid = job.metadata.uid, .queue = "team"};
  out.nodes = job.spec.nodes;
  return out;
}

Workload admitted(Workload workload) {
  workload.has_quota = workload.admitted = true;
  workload.admission = {.cluster_queue = "cluster", .nodes = workload.nodes, .flavors = {"spot"}};
  return workload;
}

Observed with_workload(const Job& job, std::optional<Workload> workload) {
  Observed out = seen(job, {});
  out.workloads.emplace();
  if (workload) out.workloads->push_back(*workload);
  return out;
}

// A job of the manager cluster.
JobBuilder dispatched() { return JobBuilder().queue("team").managed_by(api::kManagedByMultiKueue); }

// A job with the status that Kueue copies from the worker cluster.
Job copied(Phase phase, JobBuilder builder = dispatched()) {
  Job job = builder.phase(phase);
  api::QueueStatus& queue = job.status.queue.emplace();
  queue.name = "team";
  queue.cluster_queue = "remote";
  job.status.world_size = 2;
  return job;
}

// A job of the worker cluster, and its Workload.
Job prebuilt() {
  Job job = JobBuilder().queue("team").phase(Phase::kPending);
  job.metadata.prebuilt_workload = "trainingjob-bert-of-manager";
  job.status.queue = decide_queue(job);
  return job;
}

Workload without_owner(Workload workload) {
  workload.owner_uid.clear();
  return workload;
}

TEST(ReconcileMultiKueue, TheManagerRequestsQuotaAndCreatesNoPods) {
  const Job job = dispatched();
  Observed observed = with_workload(job, {});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("CreateWorkload " + workload_name(job), "PatchStatus Pending 0"));
  EXPECT_EQ(only<CreateWorkload>(plan).at(0).queue, "team");
  observed = after(observed, plan);
  Workload waiting = workload_of(job);
  waiting.message = "insufficient unused quota";
  *observed.workloads = {waiting};
  observed = after(observed, reconcile(observed));
  EXPECT_THAT(find_condition(observed.job.status, Phase::kPending)->message, HasSubstr("insufficient unused quota"));
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
}

TEST(ReconcileMultiKueue, TheManagerLeavesTheStatusOfACopyAlone) {
  const Job job = copied(Phase::kRunning);
  Observed observed = with_workload(job, admitted(workload_of(job)));
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("UpdateWorkload Ready " + workload_name(job)));
  observed.workloads->front().pods_ready = true;
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  // MultiKueue marks the Workload as finished before or after it copies the status.
  observed.workloads->front().finished = true;
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  const Job complete = copied(Phase::kComplete);
  EXPECT_THAT(reconcile(with_workload(complete, observed.workloads->front())).actions, IsEmpty());
}

TEST(ReconcileMultiKueue, AnEvictionInTheManagerReleasesTheQuota) {
  const Job job = copied(Phase::kRunning);
  Workload evicted = admitted(workload_of(job));
  evicted.evicted = true;
  Observed observed = with_workload(job, evicted);
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("UpdateWorkload Release " + workload_name(job)));
  observed.workloads->front().has_quota = observed.workloads->front().admitted = false;
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Pending 0"));
  const api::Status status = status_after(observed, plan);
  EXPECT_EQ(status.queue->cluster_queue, "") << "the copy is deleted";
  EXPECT_EQ(status.world_size, api::Status().world_size);
}

TEST(ReconcileMultiKueue, ASuspendedJobHasNoWorkload) {
  const Job job = copied(Phase::kRunning, dispatched().suspend());
  Observed observed = with_workload(job, admitted(workload_of(job)));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("DeleteWorkload " + workload_name(job), "PatchStatus Suspended 0"));
  observed = after(observed, plan);
  observed.workloads->clear();
  observed = after(observed, reconcile(observed));
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  observed.job.spec.suspend = false;
  EXPECT_THAT(names(reconcile(observed)), Contains("CreateWorkload " + workload_name(job)));
}

TEST(ReconcileMultiKueue, TheManagerWaitsForTheWorkloadsToBeRead) {
  Observed observed = seen(dispatched(), {});
  observed.workloads.reset();
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  EXPECT_EQ(reconcile(observed).requeue_after, seconds(1));
}

TEST(ReconcileMultiKueue, JobsOfOtherManagersAndWithoutQueueAreSkipped) {
  for (const Job& job : {JobBuilder().managed_by(api::kManagedByMultiKueue).build(),
                         JobBuilder().queue("team").managed_by("example.com/other").build()}) {
    EXPECT_THAT(reconcile(with_workload(job, {})).actions, IsEmpty());
  }
  Job deleting = dispatched();
  deleting.metadata.deletion_timestamp = at_second(5);
  EXPECT_THAT(reconcile(with_workload(deleting, {})).actions, IsEmpty());
}

TEST(ReconcileMultiKueue, TheWorkerUsesTheWorkloadThatTheJobNames) {
  const Job job = prebuilt();
  EXPECT_EQ(workload_name(job), job.metadata.prebuilt_workload);
  EXPECT_THAT(only<CreateWorkload>(reconcile(with_workload(job, {}))), IsEmpty());
  const Observed observed = with_workload(job, admitted(without_owner(workload_of(job))));
  EXPECT_THAT(names(reconcile(observed)), Contains("CreatePod bert-0-0"));
  EXPECT_EQ(only<ConfirmWorkloadUnchanged>(reconcile(observed)).at(0).name, job.metadata.prebuilt_workload);
}

TEST(ReconcileMultiKueue, TheWorkerUsesNoOtherWorkload) {
  const Job job = prebuilt();
  Workload other = admitted(without_owner(workload_of(job)));
  other.name = "other";
  Workload of_other_owner = admitted(workload_of(job));
  of_other_owner.owner_uid = "other";
  for (const Workload& workload : {other, of_other_owner})
    EXPECT_THAT(only<CreatePod>(reconcile(with_workload(job, workload))), IsEmpty());
  Job without_annotation = job;
  without_annotation.status.queue->workload.clear();
  const Workload unowned = admitted(without_owner(workload_of(without_annotation)));
  EXPECT_THAT(only<CreatePod>(reconcile(with_workload(without_annotation, unowned))), IsEmpty());
}

TEST(ReconcileMultiKueue, AJobWithMoreNodesThanItsWorkloadHasNoPods) {
  const Job job = prebuilt();
  Observed observed = with_workload(job, admitted(without_owner(workload_of(job))));
  observed.workloads->front().nodes = observed.workloads->front().admission.nodes = 1;
  const Plan plan = reconcile(observed);
  EXPECT_THAT(only<CreatePod>(plan), IsEmpty());
  EXPECT_THAT(
      find_condition(after(observed, plan).job.status, Phase::kPending)->message,
      HasSubstr("the Workload trainingjob-bert-of-manager that MultiKueue has created is for 1 nodes, and the job "
                "has 2"));
}

// MultiKueue would have to know of a second Workload.
TEST(ReconcileMultiKueue, TheWorkerNeitherReplacesNorGrowsTheWorkload) {
  const Job job = prebuilt();
  Workload waiting = without_owner(workload_of(job));
  waiting.nodes = 5;
  EXPECT_THAT(only<DeleteWorkload>(reconcile(with_workload(job, waiting))), IsEmpty());
  Job elastic = JobBuilder().nodes(4).elastic(1).queue("team").phase(Phase::kRunning);
  elastic.status.queue.emplace().name = "team";
  elastic.status.elastic.emplace().nodes = 2;
  elastic.status.queue->workload = job.status.queue->workload;
  Observed observed = with_workload(elastic, admitted(without_owner(workload_of(elastic))));
  observed.workloads->front().admission.nodes = 2;
  observed.pods = {pod(0, 0).running(), pod(0, 1).running()};
  observed.now += seconds(100'000);
  EXPECT_THAT(only<CreateWorkload>(reconcile(observed)), IsEmpty());
}

// Anybody who may change the job may change the annotation.
TEST(ReconcileMultiKueue, AChangedAnnotationDoesNotKeepQuota) {
  Job job = JobBuilder().queue("team").phase(Phase::kRunning);
  job.status.queue.emplace().name = "team";
  Workload own = admitted(workload_of(job));
  own.evicted = true;
  job.metadata.prebuilt_workload = "anything";
  EXPECT_THAT(names(reconcile(with_workload(job, own))), Contains("PatchStatus Restarting 1"));
  job.status.phase = Phase::kComplete;
  EXPECT_THAT(names(reconcile(with_workload(job, admitted(workload_of(job))))),
              Contains("UpdateWorkload Succeed " + own.name));
  Job copy = prebuilt();
  copy.status.phase = Phase::kComplete;
  const std::string given = copy.status.queue->workload;
  copy.metadata.prebuilt_workload.clear();
  EXPECT_THAT(names(reconcile(with_workload(copy, admitted(without_owner(workload_of(copy)))))),
              Contains("UpdateWorkload Succeed " + given));
}

TEST(ReconcileMultiKueue, TheManagerDeletesFinishedJobs) {
  Job copy = prebuilt();
  copy.status.phase = Phase::kComplete;
  copy.status.completion_time = at_second(1);
  copy.spec.ttl_seconds_after_finished = 0;
  EXPECT_THAT(only<DeleteJob>(reconcile(with_workload(copy, {}))), IsEmpty()) << "Kueue would create it again";
  Job job = dispatched();
  job.status = copy.status;
  job.spec.ttl_seconds_after_finished = 0;
  EXPECT_THAT(names(reconcile(with_workload(job, {}))), Contains("DeleteJob bert"));
}

TEST(ReconcileMultiKueue, ARunningCopyIsNotForgottenWithoutWorkloads) {
  Job job = dispatched();
  job.status.queue.emplace().name = "team";
  job.status.phase = Phase::kRunning;
  Observed observed = seen(job, {});
  observed.workloads_error = "forbidden";
  EXPECT_THAT(only<PatchStatus>(reconcile(observed)), IsEmpty());
}

TEST(ReconcileMultiKueue, TheWorkerReportsTheEnd) {
  Job job = prebuilt();
  job.status.phase = Phase::kComplete;
  const Observed observed = with_workload(job, admitted(without_owner(workload_of(job))));
  EXPECT_THAT(names(reconcile(observed)), Contains("UpdateWorkload Succeed " + job.metadata.prebuilt_workload));
}

}  // namespace
}  // namespace oarlock::test
