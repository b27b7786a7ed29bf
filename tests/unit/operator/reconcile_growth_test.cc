// Elastic jobs: when the group grows, by its own decision and by kubectl scale.
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/handover.h"
#include "tests/unit/operator/elastic_jobs.h"

namespace oarlock::test {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

api::AttemptRecord ended_to_grow(int attempt, SystemTime time) {
  api::AttemptRecord record;
  record.attempt = attempt;
  record.end_time = time;
  record.reason = kGrown;
  return record;
}

TEST(Elastic, GrowsBackAfterTheInterval) {
  Observed observed = seen(shrunk_job(40), {pod(1, 0).running()});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "EmitEvent Grown", "DeletePod bert-1-0"));
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.elastic->nodes, 2);
  EXPECT_EQ(next.restarts.charged, 0);
  EXPECT_EQ(next.world_size, 2);
}

TEST(Elastic, DoesNotGrow) {
  struct Row {
    const char* name;
    Job job;
    std::vector<Pod> pods = {pod(1, 0).running()};
  };
  Job never = shrunk_job(400);
  never.spec.elastic->grow_after_seconds = 0;
  Job full = shrunk_job(400);
  full.spec.nodes = full.status.elastic->wanted = 1;
  Job lossy = shrunk_job(400);
  lossy.spec.pod_template.clear();  // checkpoints are in an emptyDir
  const std::vector<Row> rows = {
      {.name = "too early", .job = shrunk_job(39)},
      {.name = "after a growth that failed", .job = shrunk_job(79, 1)},
      {.name = "after two growths that failed", .job = shrunk_job(159, 2)},
      {.name = "growAfterSeconds is 0", .job = never},
      {.name = "the group has all nodes", .job = full},
      {.name = "the checkpoints would be lost", .job = lossy},
      {.name = "the rank is done", .job = shrunk_job(400), .pods = {pod(1, 0).ended(0)}},
  };
  for (const Row& row : rows) {
    const Observed observed = seen(row.job, row.pods);
    EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1) << row.name;
  }
  const Observed due = seen(shrunk_job(80, 1), {pod(1, 0).running()});
  EXPECT_EQ(size_after(due).nodes, 2);
}

// A growth that finds no node shrinks after a minute, and the next one is later.
TEST(Elastic, FailedGrowthDelaysTheNextOne) {
  Job job = waiting_job(60);
  job.status.elastic->last_reason = kGrown;
  job.status.elastic->last_time = at_second(-10);
  job.status.attempts = {ended_to_grow(0, at_second(-10))};
  const Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).unschedulable(kNoNode)});
  EXPECT_EQ(size_after(observed).nodes, 1);
  EXPECT_EQ(size_after(observed).failed_growths, 1);

  Observed lasted = observed;
  api::AttemptRecord failure = ended_to_grow(1, at_second(-240));
  failure.reason = "PodLost";
  lasted.job.status.attempts.push_back(failure);
  lasted.job.status.elastic->last_time = at_second(60 - 1800);
  lasted.job.status.elastic->waiting_since = lasted.job.status.attempt_start_time = at_second(60 - 300);
  EXPECT_EQ(size_after(lasted).failed_growths, 0) << "the group had its nodes for as long as it had waited for them";
}

TEST(Elastic, IntervalBetweenGrowthsIsBounded) {
  Job job = shrunk_job(24 * 3600, 1000000);
  const Observed observed = seen(job, {pod(1, 0).running()});
  EXPECT_EQ(size_after(observed).nodes, 2) << "a day is the longest interval";
  job.status.elastic->last_time = at_second(61 - 24 * 3600);
  const Observed earlier = seen(job, {pod(1, 0).running()});
  EXPECT_EQ(size_after(earlier).nodes, 1);
}

// A growth stops pods that save a checkpoint. The new ones are created after that, so that they read it.
TEST(Elastic, NewPodsWaitForTheLastCheckpointOfTheOldOnes) {
  Job job = sized(elastic_job(), Phase::kRestarting, 2, 2);
  job.status.attempt_start_time = at_second(50);
  job.status.attempts = {ended_to_grow(1, at_second(50))};
  job.status.attempts.back().stopped = true;
  const Pod saves = pod(1, 0).running().deleting_until(at_second(80));
  Observed observed = seen(job, {saves});
  observed = after(observed, reconcile(observed));
  const Plan waits = reconcile(observed);
  EXPECT_THAT(waits.actions, IsEmpty());
  EXPECT_EQ(waits.requeue_after, seconds(30));
  observed.now = at_second(90);
  EXPECT_THAT(only<CreatePod>(reconcile(observed)), ::testing::SizeIs(2)) << "a pod of a dead node does not end";
  observed.now = at_second(61);
  observed.pods = {pod(1, 0).ended(0).build()};
  EXPECT_THAT(only<CreatePod>(reconcile(observed)), ::testing::SizeIs(2));
}

// ---- kubectl scale

TEST(Elastic, ScalesTheRunningGroup) {
  for (const int nodes : {1, 3}) {
    Job job = sized(elastic_job(), Phase::kRunning, 2);
    job.spec.nodes = nodes;
    const Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).running()});
    const Plan plan = reconcile(observed);
    EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "EmitEvent Scaled", "DeletePod bert-1-0",
                                         "DeletePod bert-1-1"));
    const api::Status next = status_after(observed, plan);
    EXPECT_EQ(next.elastic->nodes, nodes);
    EXPECT_EQ(next.elastic->wanted, nodes);
    EXPECT_EQ(next.restarts.charged, 0);
    EXPECT_EQ(next.restarts.total, 1);
  }
}

TEST(Elastic, ScaleOfAShrunkGroup) {
  struct Row {
    int wanted_before;
    int nodes;
    int size;
    int expected;
  };
  const std::vector<Row> rows = {
      {.wanted_before = 4, .nodes = 2, .size = 2, .expected = 2},  // it has this size already
      {.wanted_before = 4, .nodes = 3, .size = 2, .expected = 2},  // it grows later
      {.wanted_before = 4, .nodes = 1, .size = 2, .expected = 1},
      {.wanted_before = 4, .nodes = 5, .size = 2, .expected = 5},
  };
  for (const Row& row : rows) {
    Job job = sized(elastic_job(row.nodes), Phase::kRunning, row.size);
    job.status.elastic->wanted = row.wanted_before;
    job.status.elastic->last_time = at_second(50);
    const Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).running()});
    EXPECT_EQ(size_after(observed).nodes, row.expected) << row.nodes;
    EXPECT_EQ(size_after(observed).wanted, row.nodes);
  }
}

// One restart for both.
TEST(Elastic, ScaleAppliesWithTheRestartAfterAFailure) {
  Job job = sized(elastic_job(), Phase::kRunning, 2);
  job.spec.nodes = 3;
  const Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).ended(1)});
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.attempt, 2);
  EXPECT_EQ(next.elastic->nodes, 3);
  EXPECT_EQ(next.restarts.charged, 1);
}

TEST(Elastic, KeepsTheSizeAfterAFailure) {
  const Observed observed = seen(shrunk_job(10), {pod(1, 0).ended(1)});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).elastic->nodes, 1);
  EXPECT_EQ(status_after(observed, plan).elastic->attempt, 2);
  EXPECT_THAT(names(plan), Contains("CreatePod bert-2-0"));
  EXPECT_THAT(names(plan), Not(Contains("CreatePod bert-2-1")));
}

TEST(Elastic, IgnoresAScaleThatMakesTheJobInvalid) {
  Job job = sized(elastic_job(), Phase::kRunning, 2);
  job.metadata.name = std::string(56, 'a');  // with two digits of the node rank it is too long
  job.spec.nodes = 11;
  ++job.metadata.generation;
  Observed observed =
      seen(job, {PodBuilder(job.metadata.name, 1, 0).running(), PodBuilder(job.metadata.name, 1, 1).running()});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).attempt, 1);
  ASSERT_THAT(names(plan), Contains("EmitEvent InvalidSpec"));
  EXPECT_THAT(only<EmitEvent>(plan).back().message, HasSubstr("the group keeps its 2 nodes"));
  observed = after(observed, plan);
  EXPECT_THAT(names(reconcile(observed)), Not(Contains("EmitEvent InvalidSpec"))) << "once";
  observed.job.spec.nodes = 2;
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1);
}

TEST(Elastic, DoesNotGrowToAnInvalidSize) {
  Job job = shrunk_job(3000);
  job.metadata.name = std::string(56, 'a');  // with two digits of the node rank it is too long
  job.spec.nodes = 11;
  job.status.elastic->wanted = 11;
  const Observed observed = seen(job, {PodBuilder(job.metadata.name, 1, 0).running()});
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1);
  Observed lost = observed;
  lost.pods.clear();
  const api::Status next = status_after(lost, reconcile(lost));
  EXPECT_EQ(next.attempt, 2) << "the group that fits restarts after a failure";
  EXPECT_EQ(next.elastic->nodes, 1);
}

TEST(Elastic, DoesNotWaitForPodsThatExceedTheirGracePeriod) {
  Observed observed =
      seen(waiting_job(300, 3), {pod(1, 0).running(), pod(1, 1).scheduled(), pod(1, 2).unschedulable(kNoNode)});
  observed = after(observed, reconcile(observed));
  observed.pods = {pod(0, 2).running().deleting_until(observed.now - kStopMargin)};
  EXPECT_EQ(only<CreatePod>(reconcile(observed)).size(), 2U);
  observed.pods.push_back(pod(1, 1).running().deleting_until(observed.now));
  EXPECT_THAT(only<CreatePod>(reconcile(observed)), IsEmpty());
}

TEST(Elastic, ResumeStartsWithAllNodes) {
  Job job = shrunk_job(10);
  job.status.phase = Phase::kSuspended;
  job.status.conditions = {{to_string(Phase::kSuspended), true, "Suspended", "by the test", at_second(1)}};
  const Observed observed = seen(job);
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.attempt, 2);
  EXPECT_EQ(next.elastic->nodes, 2);
  EXPECT_EQ(next.elastic->failed_growths, 0);
}

}  // namespace
}  // namespace oarlock::test
