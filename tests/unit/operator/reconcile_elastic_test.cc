// The size of an elastic job's group: shrinking, growing back, and scaling.
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/handover.h"
#include "tests/unit/operator/elastic_jobs.h"

namespace oarlock::test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Elastic, RecordsTheSizeBeforePodsExist) {
  const Observed observed = seen(elastic_job());
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan),
              ElementsAre("PatchStatus Pending 0", "CreatePod bert-0-0", "CreatePod bert-0-1", "EmitEvent Started"));
  const api::Status next = status_after(observed, plan);
  ASSERT_TRUE(next.elastic);
  EXPECT_EQ(next.elastic->nodes, 2);
  EXPECT_EQ(next.elastic->wanted, 2);
  EXPECT_EQ(next.elastic->attempt, 0);
  for (const CreatePod& pod : only<CreatePod>(plan)) EXPECT_EQ(pod.nodes, 2);
}

TEST(Elastic, OtherJobsHaveNoSize) {
  const Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1)});
  EXPECT_FALSE(status_after(observed, reconcile(observed)).elastic);
}

TEST(Elastic, RecordsSinceWhenPodsWait) {
  const Observed observed = seen(sized(elastic_job(), Phase::kRestarting, 2), {pod(1, 0).running(), pod(1, 1)});
  EXPECT_EQ(size_after(observed).waiting_since, at_second(60));
  expect_settled(observed, reconcile(observed));
  const Observed placed = seen(waiting_job(10), {pod(1, 0).running(), pod(1, 1).running()});
  EXPECT_EQ(size_after(placed).waiting_since, std::nullopt) << "it runs again";
}

TEST(Elastic, ShrinksToThePodsThatHaveNodes) {
  Observed observed =
      seen(waiting_job(300, 3), {pod(1, 0).running(), pod(1, 1).scheduled(), pod(1, 2).unschedulable(kNoNode)});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 2", "EmitEvent Shrunk", "DeletePod bert-1-0",
                                       "DeletePod bert-1-1", "DeletePod bert-1-2"))
      << "the new pods wait until the old ones have ended";
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.elastic->nodes, 2);
  EXPECT_EQ(next.elastic->wanted, 3);
  EXPECT_EQ(next.elastic->attempt, 2);
  EXPECT_EQ(next.elastic->last_reason, kShrunk);
  EXPECT_EQ(next.elastic->last_time, at_second(60));
  EXPECT_EQ(next.world_size, 2);
  EXPECT_EQ(next.nodes.desired, 2) << "status.replicas of kubectl scale";
  EXPECT_EQ(next.restarts.total, 1);
  EXPECT_EQ(next.restarts.charged, 0);
  EXPECT_EQ(next.restarts.reasons.at(0).reason, kShrunk);
  EXPECT_THAT(next.attempts.back().message,
              AllOf(HasSubstr("2 nodes instead of 3: 1 of 3 pods had no node for at least 300 s"), HasSubstr(kNoNode)));
  EXPECT_EQ(condition_of(next, Phase::kRestarting).reason, kShrunk);

  // Once the old pods have ended, the new group is created with its own size.
  Observed gone = after(observed, plan);
  gone.pods.clear();
  const Plan create = reconcile(gone);
  EXPECT_THAT(names(create), ElementsAre("PatchStatus Restarting 2", "CreatePod bert-2-0", "CreatePod bert-2-1"));
  for (const CreatePod& pod : only<CreatePod>(create)) EXPECT_EQ(pod.nodes, 2);
}

TEST(Elastic, DoesNotShrink) {
  struct Row {
    const char* name;
    Job job;
    std::vector<Pod> pods;
  };
  const Pod running = pod(1, 0).running();
  const Pod waits = pod(1, 1).unschedulable(kNoNode);
  Job new_attempt = waiting_job(400);
  new_attempt.status.attempt_start_time = at_second(50);
  Job not_elastic = waiting_job(400);
  not_elastic.spec.elastic.reset();
  const std::vector<Row> rows = {
      {.name = "too early", .job = waiting_job(299), .pods = {running, waits}},
      {.name = "fewer than minNodes", .job = waiting_job(400, 2, 2), .pods = {running, waits}},
      {.name = "none has a node", .job = waiting_job(400), .pods = {pod(1, 0).unschedulable(kNoNode), waits}},
      {.name = "the image is missing",
       .job = waiting_job(400),
       .pods = {running, pod(1, 1).scheduled().waiting("ImagePullBackOff")}},
      {.name = "the pods of a new attempt had no time", .job = new_attempt, .pods = {running, waits}},
      {.name = "the job is not elastic", .job = not_elastic, .pods = {running, waits}},
      {.name = "a rank is done", .job = waiting_job(400), .pods = {pod(1, 0).ended(0), waits}},
  };
  for (const Row& row : rows) {
    const Observed observed = seen(row.job, row.pods);
    EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1) << row.name;
  }
}

TEST(Elastic, WaitsForTheExactTime) {
  Observed observed = seen(waiting_job(299), {pod(1, 0).running(), pod(1, 1).unschedulable(kNoNode)});
  observed = after(observed, reconcile(observed));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(plan.requeue_after, seconds(1));
}

// A cluster that grows adds its nodes one after the other, so that the next pod may be placed a second later.
TEST(Elastic, WaitsForOtherPodsAfterAPlacement) {
  struct Row {
    const char* name;
    std::vector<int> placed_seconds_ago;  // of the pods that have a node, by node rank
    int waited_seconds = 400;
    int min_nodes = 1;
    int shrink_after = 300;
    bool shrinks = false;
    int requeue_seconds = 0;
  };
  const std::vector<Row> rows = {
      {.name = "the first pod was just placed", .placed_seconds_ago = {0}, .requeue_seconds = 30},
      {.name = "a second before it has settled", .placed_seconds_ago = {29}, .requeue_seconds = 1},
      {.name = "it has settled", .placed_seconds_ago = {30}, .shrinks = true},
      {.name = "each placement counts", .placed_seconds_ago = {40, 12}, .requeue_seconds = 18},
      {.name = "shrinkAfterSeconds is shorter", .placed_seconds_ago = {10}, .shrink_after = 10, .shrinks = true},
      {.name = "and not over", .placed_seconds_ago = {9}, .shrink_after = 10, .requeue_seconds = 1},
      {.name = "the wait is not over", .placed_seconds_ago = {200}, .waited_seconds = 290, .requeue_seconds = 10},
      {.name = "a late placement", .placed_seconds_ago = {310, 15}, .waited_seconds = 310, .requeue_seconds = 15},
      {.name = "too late to count", .placed_seconds_ago = {340, 5}, .waited_seconds = 340, .shrinks = true},
      {.name = "placed long before the wait",
       .placed_seconds_ago = {700, 5},
       .waited_seconds = 310,
       .requeue_seconds = 20},
      {.name = "minNodes has just been reached", .placed_seconds_ago = {390, 5}, .min_nodes = 2, .requeue_seconds = 25},
      {.name = "the rank of the first pod waits",
       .placed_seconds_ago = {269, 32, 8},
       .waited_seconds = 270,
       .min_nodes = 2,
       .shrink_after = 240,
       .requeue_seconds = 1},
      {.name = "the rank of the first pod has waited",
       .placed_seconds_ago = {270, 33, 9},
       .waited_seconds = 271,
       .min_nodes = 2,
       .shrink_after = 240,
       .shrinks = true},
      {.name = "the API server's clock is a little ahead", .placed_seconds_ago = {-20}, .requeue_seconds = 50},
      {.name = "the API server's clock is far ahead", .placed_seconds_ago = {-31}, .shrinks = true},
      {.name = "the API server's clock is an hour ahead", .placed_seconds_ago = {-3600}, .shrinks = true},
  };
  for (const Row& row : rows) {
    Job job = waiting_job(row.waited_seconds, 4, row.min_nodes);
    job.spec.elastic->shrink_after_seconds = row.shrink_after;
    std::vector<Pod> pods;
    for (int rank = 0; rank < 4; ++rank) {
      const auto node = static_cast<size_t>(rank);
      if (node < row.placed_seconds_ago.size()) {
        pods.push_back(pod(1, rank).running().scheduled_at(at_second(60 - row.placed_seconds_ago[node])));
      } else {
        pods.push_back(pod(1, rank).unschedulable(kNoNode));
      }
    }
    Observed observed = seen(job, pods);
    EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, row.shrinks ? 2 : 1) << row.name;
    if (row.shrinks) continue;
    observed = after(observed, reconcile(observed));
    EXPECT_EQ(reconcile(observed).requeue_after, seconds(row.requeue_seconds)) << row.name;
  }
}

TEST(Elastic, CountsPodsThatQuotaRejects) {
  Observed observed = seen(waiting_job(300), {pod(1, 0).running()});
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1);
  observed.last_error = "pods \"bert\" is forbidden: exceeded quota";
  EXPECT_EQ(size_after(observed).nodes, 1);
}

// The time that pods wait does not begin again with each failure of the ranks that wait for them.
TEST(Elastic, WaitContinuesAfterAFailure) {
  const Observed observed = seen(waiting_job(100), {pod(1, 0).ended(1), pod(1, 1).unschedulable(kNoNode)});
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.attempt, 2);
  EXPECT_EQ(next.elastic->attempt, 2);
  EXPECT_EQ(next.elastic->nodes, 2);
  EXPECT_EQ(next.elastic->waiting_since, at_second(-40));
}

// ---- Growth

// ---- restartScope Rank

TEST(Elastic, GivesUpAReplacementWithoutANode) {
  Job job = sized(elastic_job().restart_scope(api::RestartScope::kRank), Phase::kRunning, 2);
  job.status.replacements = {{.node_rank = 1,
                              .attempt = 1,
                              .pod_uid = "lost",
                              .time = at_second(60 - 300),
                              .reason = "PodDeleted",
                              .message = "pod bert-1-1 was deleted"}};
  const Observed observed = seen(job, {pod(1, 0).running(), pod(1, 1).unschedulable(kNoNode)});
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.elastic->nodes, 1);
  EXPECT_EQ(next.elastic->last_reason, kShrunk);
  EXPECT_EQ(next.restarts.charged, 0);
  EXPECT_EQ(next.restarts.reasons.at(0).reason, kShrunk);
  EXPECT_THAT(next.attempts.back().message,
              AllOf(HasSubstr("1 node instead of 2: "), HasSubstr("its replacement did not start within 300 s")));
}

TEST(Elastic, KeepsAReplacementWhileOthersGetNodes) {
  Job job = sized(elastic_job(3).restart_scope(api::RestartScope::kRank), Phase::kRunning, 3);
  for (const int rank : {1, 2}) {
    job.status.replacements.push_back({.node_rank = rank,
                                       .attempt = 1,
                                       .pod_uid = "lost",
                                       .time = at_second(60 - 305),
                                       .reason = "PodDeleted",
                                       .message = "the pod was deleted"});
  }
  const auto seen_after = [&](int placed_seconds_ago) {
    return seen(job, {pod(1, 0).running().scheduled_at(at_second(-3600)),
                      pod(1, 1).scheduled_at(at_second(60 - placed_seconds_ago)), pod(1, 2).unschedulable(kNoNode)});
  };
  Observed observed = seen_after(29);
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1);
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(reconcile(observed).requeue_after, seconds(1));
  observed = seen_after(30);
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 2);
  observed = seen_after(-3600);
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 2) << "the API server's clock is ahead";
}

// The ranks that remain have waited since the loss, also if replacements complete minNodes later.
TEST(Elastic, LateReplacementsDoNotDelayTheDecision) {
  for (const int lost_seconds_ago : {329, 330}) {
    Job job = sized(elastic_job(4, 2).restart_scope(api::RestartScope::kRank), Phase::kRunning, 4);
    for (const int rank : {1, 2, 3}) {
      job.status.replacements.push_back({.node_rank = rank,
                                         .attempt = 1,
                                         .pod_uid = "lost",
                                         .time = at_second(60 - lost_seconds_ago),
                                         .reason = "PodDeleted",
                                         .message = "the pod was deleted"});
    }
    Observed observed =
        seen(job, {pod(1, 0).running().scheduled_at(at_second(-3600)), pod(1, 1).scheduled_at(at_second(-40)),
                   pod(1, 2).scheduled_at(at_second(58)), pod(1, 3).unschedulable(kNoNode)});
    const bool is_due = lost_seconds_ago == 330;
    EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, is_due ? 2 : 1);
    if (is_due) continue;
    observed = after(observed, reconcile(observed));
    EXPECT_EQ(reconcile(observed).requeue_after, seconds(1));
  }
}

// ---- Everything that depends on the size

TEST(Elastic, PodsHaveTheSizeOfTheirAttempt) {
  Job job = shrunk_job(10);
  const auto variables = [](const nlohmann::json& pod) {
    std::map<std::string, std::string> out;
    for (const auto& one : pod["spec"]["containers"][0]["env"])
      out[one["name"]] = one.contains("value") ? one["value"].get<std::string>() : "";
    return out;
  };
  const auto env = variables(PodFactory(job, 1).pod(0));
  EXPECT_EQ(env.at("WORLD_SIZE"), "1");
  EXPECT_EQ(env.at("PET_NNODES"), "1");
  const auto larger = variables(PodFactory(job, 2, 2, {}, {}).pod(1));
  EXPECT_EQ(larger.at("WORLD_SIZE"), "2");
}

TEST(Elastic, PodsOfAnAttemptHaveTheKeyOfItsSize) {
  Job job = shrunk_job(10);
  job.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  const RegroupSecret secret{"token", "key"};
  const auto annotations = [&](int attempt, int nodes) {
    return PodFactory(job, attempt, nodes, {}, secret)
        .pod(0)["metadata"]
        .value("annotations", nlohmann::json::object());
  };
  EXPECT_EQ(annotations(2, 2)[kAnnotationRegroupKeyId], "key");
  EXPECT_FALSE(annotations(1, 1).contains(kAnnotationRegroupKeyId)) << "a single rank does not regroup";
}

TEST(Elastic, ShrunkGroupCompletesWithItsRanks) {
  const Observed observed = seen(shrunk_job(10), {pod(1, 0).ended(0)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
}

TEST(Elastic, RestartsForANewSizeDoNotDelayTheNextOne) {
  api::Status status;
  status.phase = Phase::kRestarting;
  const auto record = [&](const char* reason, const char* pod, int end) {
    api::AttemptRecord out;
    out.reason = reason;
    out.pod = pod;
    out.start_time = at_second(end - 10);
    out.end_time = at_second(end);
    status.attempts.push_back(out);
  };
  for (int i = 0; i < 4; ++i) record("Shrunk", "", 10 * i);
  const Job job = JobBuilder().backoff_seconds(10);
  EXPECT_EQ(restart_delay(job, status), seconds(0));
  EXPECT_EQ(restart_time(job, status, status.attempts.back().end_time), std::nullopt);
  record("PodFailed", "bert-0-0", 50);
  record("Grown", "bert-1-0", 60);  // the reason of a termination message
  EXPECT_EQ(restart_delay(job, status), seconds(10));
}

// The status of an attempt was lost, and with it the size of its pods.
TEST(Elastic, DoesNotAdoptAnAttemptOfUnknownSize) {
  const Observed observed = seen(sized(elastic_job(), Phase::kRunning, 2), {pod(3, 0).running()});
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).attempt, 4);
  EXPECT_EQ(status_after(observed, plan).elastic->attempt, 4);
}

}  // namespace
}  // namespace oarlock::test
