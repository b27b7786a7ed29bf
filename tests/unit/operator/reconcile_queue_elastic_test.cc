// A job in a queue that is admitted with fewer nodes, and grows later.
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
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ReconcileQueue, AnElasticJobRunsWithTheAdmittedNodes) {
  const Job job = queued(Phase::kPending, JobBuilder().nodes(4).elastic(2, 300, 600));
  Observed observed = with_workload(job, {}, {});
  Plan plan = reconcile(observed);
  EXPECT_EQ(only<CreateWorkload>(plan).at(0).min_nodes, 2);
  observed = with_workload(after(observed, plan).job, {}, admitted(job, 3));
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre(confirm(job), "PatchStatus Pending 0", "EmitEvent PartiallyAdmitted",
                                       confirm(job), "CreatePod bert-0-0", "CreatePod bert-0-1", "CreatePod bert-0-2"));
  EXPECT_EQ(only<CreatePod>(plan).at(0).nodes, 3);
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.elastic->nodes, 3);
  EXPECT_EQ(next.attempt, 0);

  // Without quota for more nodes it does not grow. It needs none for fewer.
  observed = after(observed, plan);
  observed.pods = {pod(0, 0).running(), pod(0, 1).running(), pod(0, 2).running()};
  observed = after(observed, reconcile(observed));
  observed.workloads->front().pods_ready = true;
  ASSERT_EQ(observed.job.status.phase, Phase::kRunning);
  observed.now += seconds(100000);
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 0);
  observed.job.spec.nodes = 6;
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 0);
  observed.job.spec.nodes = 2;
  plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).elastic->nodes, 2);
  EXPECT_THAT(only<DeleteWorkload>(plan), IsEmpty());
  observed = without_pods(observed, plan);
  EXPECT_THAT(names(reconcile(observed)), Contains("CreatePod bert-1-1")) << "with the quota that it has";
}

// The Workload that takes over the quota of the first one.
Workload slice(const Job& job, int nodes, int number = 2) {
  Workload out = waiting(job);
  out.name = workload_name(job, number);
  out.uid = "w" + std::to_string(number);
  out.nodes = nodes;
  return out;
}

// A job that runs with two of its four nodes, for which its queue has admitted it.
Observed partly_admitted() {
  Job job = queued(Phase::kRunning, JobBuilder().nodes(4).elastic(1, 10, 300));
  api::GroupSize& size = job.status.elastic.emplace();
  size.nodes = 2;
  size.wanted = 4;
  size.last_reason = kShrunk;
  size.last_time = at_second(0);
  Observed out = with_workload(job, {pod(0, 0).running(), pod(0, 1).running()}, admitted(job, 2));
  out.workloads->front().pods_ready = true;
  out = after(out, reconcile(out));
  EXPECT_THAT(names(reconcile(out)), IsEmpty());
  return out;
}

TEST(ReconcileQueue, AnElasticJobGrowsWhenItsQueueAdmitsMoreNodes) {
  Observed observed = partly_admitted();
  const Job job = observed.job;
  observed.now = at_second(300);
  Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("CreateWorkload " + workload_name(job, 2)));
  EXPECT_EQ(only<CreateWorkload>(plan).at(0),
            (CreateWorkload{workload_name(job, 2), "team", 4, {}, workload_name(job)}));

  observed.workloads->push_back(slice(job, 4));
  EXPECT_THAT(names(reconcile(observed)), IsEmpty()) << "it runs on while the request waits";

  observed.workloads->front().finished = true;
  Workload& grown = observed.workloads->back();
  grown.has_quota = grown.admitted = true;
  grown.admission = {.cluster_queue = "cluster", .nodes = 4, .flavors = {"spot"}};
  const Observed taken_over = observed;
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("DeleteWorkload " + workload_name(job)));
  EXPECT_EQ(status_after(observed, plan).queue->nodes, 4);
  observed = after(observed, plan);
  std::erase_if(*observed.workloads, [](const Workload& one) { return one.finished; });
  observed.workloads->front().pods_ready = true;
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("EmitEvent Grown"));
  EXPECT_EQ(status_after(observed, plan).elastic->nodes, 4);
  EXPECT_EQ(status_after(observed, plan).restarts.charged, 0);
  observed = without_pods(observed, plan);
  EXPECT_THAT(names(reconcile(observed)), Contains("CreatePod bert-1-3"));

  // Of the Workload that takes over, the eviction stops the pods. It is not kept, because it has no minimum.
  observed = taken_over;
  observed.workloads->back().evicted = true;
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("EmitEvent QueueEvicted"));
  observed = without_pods(observed, plan);
  observed.workloads->back().has_quota = observed.workloads->back().admitted = false;
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("DeleteWorkload " + workload_name(job)));
  observed.workloads->erase(observed.workloads->begin());
  EXPECT_THAT(only<DeleteWorkload>(reconcile(observed)), IsEmpty()) << "its back-off, and a deactivation, count";
  observed.workloads->back().requeued = true;
  EXPECT_THAT(names(reconcile(observed)), Contains("DeleteWorkload " + workload_name(job, 2)));
}

TEST(ReconcileQueue, ARequestForMoreNodesEndsWithItsReason) {
  Observed observed = partly_admitted();
  observed.now = at_second(300);
  const Job job = observed.job;
  const std::string remove = "DeleteWorkload " + workload_name(job, 2);
  observed.workloads->push_back(slice(job, 4));

  Observed smaller = observed;
  smaller.job.spec.nodes = 2;
  EXPECT_EQ(only<DeleteWorkload>(reconcile(smaller)).at(0), (DeleteWorkload{workload_name(job, 2), "w2", "7"}))
      << "unless Kueue has admitted it meanwhile";
  Observed suspended = observed;
  suspended.job.spec.suspend = true;
  EXPECT_THAT(names(reconcile(suspended)), Contains(remove));
  Observed finished = observed;
  finished.job.status.phase = Phase::kComplete;
  EXPECT_THAT(names(reconcile(finished)), Contains(remove));
  Observed preempted = observed;
  preempted.workloads->front().evicted = true;
  preempted = after(preempted, reconcile(preempted));
  EXPECT_THAT(names(reconcile(preempted)), Contains(remove));
  Observed placed = observed;
  placed.workloads->pop_back();
  placed.workloads->front().admission.has_topology = true;
  EXPECT_THAT(names(reconcile(placed)), IsEmpty()) << "Kueue does not support it for a topology";
  placed.workloads->front().admission.has_topology = false;
  placed.workloads->front().has_checks = true;
  EXPECT_THAT(names(reconcile(placed)), IsEmpty()) << "a rejected check would end the group";
  placed.workloads->front().has_checks = false;
  placed.last_error = "the webhook of Kueue does not respond";
  EXPECT_THAT(only<CreateWorkload>(reconcile(placed)), IsEmpty());

  Observed evicted_request = observed;
  evicted_request.workloads->back().evicted = evicted_request.workloads->back().has_quota = true;
  EXPECT_THAT(names(reconcile(evicted_request)), Contains(remove));
  // Kueue has admitted the request meanwhile, but not yet finished the first Workload.
  Observed ended = finished;
  ended.workloads->back().has_quota = true;
  EXPECT_THAT(names(reconcile(ended)), Not(Contains(remove))) << "pods run";
}

}  // namespace
}  // namespace oarlock::test
