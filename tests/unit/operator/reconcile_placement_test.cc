// Groups whose pods cannot all be placed on nodes.
#include "operator/core/placement.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A job of two pods, of which the second has no node since the start of the attempt at second 0.
Observed half_placed(SystemTime now, JobBuilder job = JobBuilder().pending_timeout(60)) {
  Job built = job.phase(Phase::kPending);
  built.status.start_time = built.status.attempt_start_time = at_second(0);
  Pod waiting = pod(0, 1);
  waiting.unscheduled_message = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";
  Observed observed = seen(built, {pod(0, 0).running(), waiting});
  for (Pod& one : observed.pods) one.created = at_second(0);
  observed.now = now;
  return observed;
}

TEST(ReconcilePlacement, AGroupThatCannotBePlacedReleasesItsPods) {
  EXPECT_THAT(names(reconcile(half_placed(at_second(59)))), Not(Contains("DeletePod bert-0-0")));
  EXPECT_LE(reconcile(half_placed(at_second(59))).requeue_after, seconds(1));
  const Observed observed = half_placed(at_second(60));
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Restarting 1", "EmitEvent Restarting", "DeletePod bert-0-0",
                                       "DeletePod bert-0-1"));
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.restarts.total, 1);
  EXPECT_EQ(next.restarts.charged, 0);
  EXPECT_EQ(next.restarts.reasons.at(0).reason, "NotPlaced");
  EXPECT_EQ(next.attempts.at(0).reason, "NotPlaced");
  EXPECT_EQ(next.attempts.at(0).message,
            "not all pods were placed within 60 s: 1 of 2 pods have started; pod bert-0-1: 0/2 nodes are available: "
            "2 Insufficient nvidia.com/gpu.");

  Observed then = after(observed, plan);
  then.pods.clear();
  EXPECT_THAT(names(reconcile(then)), Not(Contains("CreatePod bert-1-0"))) << "other jobs use the room meanwhile";
  const std::optional<seconds> delay = reconcile(then).requeue_after;
  ASSERT_TRUE(delay);
  EXPECT_GE(*delay, seconds(30));
  EXPECT_LT(*delay, seconds(60));
  then.now += *delay;
  EXPECT_THAT(names(reconcile(then)), Contains("CreatePod bert-1-0"));
  then = after(then, reconcile(then));
  then.pods = {pod(1, 0), pod(1, 1)};
  for (Pod& one : then.pods) one.created = then.now;
  EXPECT_EQ(placement_deadline(then, classify_objects(then)), then.now + seconds(60)) << "after the delay";
}

TEST(ReconcilePlacement, AQuotaThatRejectsAPodCountsToo) {
  Observed observed = half_placed(at_second(60));
  observed.pods.pop_back();
  observed.last_error = R"(pods "bert-0-1" is forbidden: exceeded quota: team, requested: pods=1, used: pods=3)";
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.phase, Phase::kRestarting);
  EXPECT_THAT(next.attempts.at(0).message, HasSubstr("exceeded quota: team"));
}

// Neither its delay, nor the time that earlier pods take to end, nor that without an operator counts.
TEST(ReconcilePlacement, OnlyTimeWithPodsCounts) {
  Observed observed = half_placed(at_second(5000), JobBuilder().pending_timeout(600));
  observed.pods.clear();
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt);
  observed.last_error = "exceeded quota";
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt) << "it holds nothing";
  observed.pods = {pod(0, 0)};
  observed.pods[0].created = at_second(4900);
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), at_second(5500));
  observed.pods[0].created = at_second(9000);  // of a wrong clock
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), at_second(5600));
  Pod foreign = pod(0, 1);
  foreign.owner_uid = "other";
  observed.pods.push_back(foreign);
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt) << "room would not help";
}

TEST(ReconcilePlacement, AnElasticGroupShrinksInstead) {
  Observed observed = half_placed(at_second(200));
  observed.job.spec.elastic = api::Elastic{.min_nodes = 1, .max_nodes = {}, .shrink_after_seconds = 300};
  observed.job.status.elastic.emplace().nodes = 2;
  observed.job.status.elastic->waiting_since = at_second(0);
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt);
  observed.job.status.finished_ranks = api::FinishedRanks{0, "0"};
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), at_second(60)) << "it keeps its size";
  observed.job.status.finished_ranks.reset();
  observed.job.spec.elastic->min_nodes = 2;
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), at_second(60)) << "it cannot";
}

TEST(ReconcilePlacement, ThePolicyMayFailTheJob) {
  Observed observed = half_placed(at_second(60));
  observed.job.spec.scheduling.pending_action = api::PendingAction::kFail;
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.phase, Phase::kFailed);
  EXPECT_EQ(condition_of(next, Phase::kFailed).reason, "NotPlaced");
}

TEST(ReconcilePlacement, TheLimitIsThatOfTheJobOrOfTheOperator) {
  Observed observed = half_placed(at_second(60), JobBuilder());
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt);
  observed.pending_timeout_seconds = 50;
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), at_second(50));
  observed.job.spec.scheduling.pending_timeout_seconds = 70;
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), at_second(70));
}

TEST(ReconcilePlacement, PlacedPodsMayTakeAnyTimeToStart) {
  Observed observed = half_placed(at_second(1000));
  observed.pods[1] = pod(0, 1).scheduled();
  observed.pods[1].waiting_reason = "ImagePullBackOff";
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt);
  observed = half_placed(at_second(1000));
  observed.job.status.finished_ranks = api::FinishedRanks{0, "1"};
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt) << "it needs no pod";
}

TEST(ReconcilePlacement, TheDelayGrowsWithTheWaitingTimeAndDiffersBetweenJobs) {
  const auto delay = [](int waited, const std::string& uid, int attempt = 0) {
    Job job = JobBuilder();
    job.metadata.uid = uid;
    api::AttemptRecord record;
    record.attempt = attempt;
    record.start_time = at_second(0);
    record.end_time = at_second(waited);
    return placement_delay(job, record);
  };
  for (const auto& [waited, least] : {std::pair(1, 10), std::pair(100, 50), std::pair(100'000, 600)}) {
    EXPECT_GE(delay(waited, "a"), seconds(least));
    EXPECT_LT(delay(waited, "a"), seconds(2 * least));
  }
  EXPECT_NE(delay(1000, "a"), delay(1000, "b"));
  EXPECT_NE(delay(1000, "a"), delay(1000, "a", 1));
}

TEST(ReconcilePlacement, RepeatedRetriesKeepTheRecordsOfFailures) {
  std::vector<api::AttemptRecord> records;
  int attempt = 0;
  const auto add = [&](std::string reason, int begin, int end) {
    api::AttemptRecord record;
    record.attempt = attempt++;
    record.reason = std::move(reason);
    record.start_time = at_second(begin);
    record.end_time = at_second(end);
    add_record(record, records);
  };
  add("PodFailed", 0, 10);
  for (int i = 1; i < 20; ++i) add("NotPlaced", 10 * i, 10 * i + 10);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].reason, "PodFailed");
  EXPECT_EQ(records[1].start_time, at_second(10));
  EXPECT_EQ(records[1].end_time, at_second(200));
  api::Status status;
  status.attempts = records;
  status.attempt = attempt;
  EXPECT_EQ(first_kept_attempt(status), 0) << "its logs explain the failure";
  ++attempt;  // ended by a suspension
  add("NotPlaced", 5000, 5060);
  ASSERT_EQ(records.size(), 3U) << "retries that follow each other only";
  add("PodFailed", 6000, 6010);
  status.attempts = records;
  status.attempt = attempt;
  EXPECT_EQ(first_kept_attempt(status), attempt - 1);
}

}  // namespace
}  // namespace oarlock::test
