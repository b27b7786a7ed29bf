// Replacement of single pods, in jobs whose failurePolicy.restartScope is Rank.
#include "operator/core/desired.h"
#include "operator/core/failure.h"
#include "operator/core/replacement.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kMessage[] =
    R"({"rank":1,"step":5,"checkpointStep":2,"reason":"KilledBySignal","message":"rank 1 ended with signal 9"})";

JobBuilder by_rank(Phase phase = Phase::kRunning) {
  return JobBuilder().nodes(2).restart_scope(api::RestartScope::kRank).phase(phase);
}

api::Replacement replacement(const std::string& uid, SystemTime time = at_second(50)) {
  return {.node_rank = 1,
          .attempt = 0,
          .pod_uid = uid,
          .time = time,
          .reason = "PodDeleted",
          .message = "pod bert-0-1 was deleted"};
}

Job replacing(const api::Replacement& record, Phase phase = Phase::kRunning) {
  Job job = by_rank(phase);
  job.status.replacements = {record};
  job.status.recoveries =
      api::Recoveries{.last_ranks = "", .last_reason = "", .last_time = {}, .pods = 1, .charged = 1};
  return job;
}

struct Loss {
  const char* name;
  std::vector<Pod> pods;
  std::string reason{};
  int charged = 1;
};

TEST(ReconcileReplace, RecordsTheLossBeforeItActs) {
  const std::vector<Loss> losses = {
      {.name = "deleted", .pods = {pod(0, 0).running(), pod(0, 1).running().deleting()}, .reason = "PodDeleted"},
      {.name = "evicted", .pods = {pod(0, 0).running(), pod(0, 1).evicted("disk")}, .reason = "Evicted"},
      {.name = "gone", .pods = {pod(0, 0).running()}, .reason = "PodLost"},
      {.name = "killed", .pods = {pod(0, 0).running(), pod(0, 1).ended(137)}, .reason = "PodFailed"},
      {.name = "out of memory",
       .pods = {pod(0, 0).running(), pod(0, 1).ended(137, "", "OOMKilled")},
       .reason = "OOMKilled"},
      {.name = "preempted",
       .pods = {pod(0, 0).running(), pod(0, 1).running().disrupted("PreemptionByScheduler").deleting()},
       .reason = "PreemptionByScheduler",
       .charged = 0},
  };
  for (const Loss& loss : losses) {
    const Observed observed = seen(by_rank(), loss.pods);
    const Plan plan = reconcile(observed);
    EXPECT_THAT(names(plan),
                ElementsAre("ConfirmPodAbsent bert-0-1", "PatchStatus Running 0", "EmitEvent ReplacingPod"))
        << loss.name;
    const api::Status next = status_after(observed, plan);
    ASSERT_EQ(next.replacements.size(), 1U) << loss.name;
    EXPECT_EQ(next.replacements[0].reason, loss.reason) << loss.name;
    EXPECT_EQ(next.replacements[0].pod_uid, loss.pods.size() == 1 ? "" : "uid-of-bert-0-1") << loss.name;
    EXPECT_EQ(only<ConfirmPodAbsent>(plan).at(0).except_uid, next.replacements[0].pod_uid) << loss.name;
    EXPECT_EQ(next.recoveries->pods, 1) << loss.name;
    EXPECT_EQ(next.recoveries->charged, loss.charged) << loss.name;
    EXPECT_EQ(next.restarts, api::Restarts{.after_progress = api::AfterProgress{}}) << loss.name;
    expect_settled(observed, plan);
  }
}

TEST(ReconcileReplace, RestartsTheGroupIfItCannotRecover) {
  const Pod running = pod(0, 0).running();
  const std::vector<Loss> losses = {
      {.name = "the launchers ended the group", .pods = {pod(0, 0).ended(76), pod(0, 1).running().deleting()}},
      {.name = "a launcher that ended by itself", .pods = {running, pod(0, 1).ended(137, kMessage)}},
      {.name = "its own exit code", .pods = {running, pod(0, 1).ended(1)}},
      {.name = "no survivor", .pods = {pod(0, 0).running().deleting(), pod(0, 1).running().deleting()}},
      {.name = "the survivor has not started", .pods = {pod(0, 0).scheduled(), pod(0, 1).running().deleting()}},
      {.name = "a finished rank", .pods = {pod(0, 0).ended(0), pod(0, 1).running().deleting()}},
  };
  for (const Loss& loss : losses) {
    const Observed observed = seen(by_rank(), loss.pods);
    EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRestarting) << loss.name;
  }
  const std::vector<Pod> lost = {running, pod(0, 1).running().deleting()};
  for (const Job& job :
       {by_rank().restart_scope(api::RestartScope::kGroup).build(), by_rank(Phase::kPending).build()}) {
    const Observed observed = seen(job, lost);
    EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRestarting);
  }
}

// A record for each lost pod of a large job would make the status larger than the operator reads.
TEST(ReconcileReplace, RestartsTheGroupIfManyPodsAreLostTogether) {
  const auto phase_after = [](int64_t lost) {
    std::vector<Pod> pods;
    for (int rank = 0; rank < 100; ++rank) {
      PodBuilder builder = pod(0, rank);
      builder.running();
      if (rank < lost) builder.disrupted("TerminationByKubelet").deleting();
      pods.push_back(builder);
    }
    const Observed observed = seen(by_rank().nodes(100), pods);
    return status_after(observed, reconcile(observed)).phase;
  };
  EXPECT_EQ(phase_after(kMaxReplacements), Phase::kRunning);
  EXPECT_EQ(phase_after(kMaxReplacements + 1), Phase::kRestarting);
}

// A new pod gets a token that depends on the Service's key. The others must have the same one.
TEST(ReconcileReplace, RestartsTheGroupIfANewPodCouldNotJoin) {
  struct Case {
    const char* name;
    std::string pods;                    // their key
    std::optional<std::string> service;  // its key
  };
  const std::vector<Case> cases = {{.name = "an earlier version created the pods", .pods = "", .service = "key"},
                                   {.name = "an earlier version created the Service", .pods = "", .service = ""},
                                   {.name = "the Service was created again", .pods = "key", .service = "another"},
                                   {.name = "the Service was deleted", .pods = "key", .service = std::nullopt}};
  for (const Case& test_case : cases) {
    Pod survivor = pod(0, 0).running().regroup_key(test_case.pods);
    Pod lost = pod(0, 1).running().deleting().regroup_key(test_case.pods);
    const auto with_service = [&](Observed observed) {
      if (test_case.service) {
        observed.services[0].regroup_key = *test_case.service;
      } else {
        observed.services.clear();
      }
      return observed;
    };
    const Observed observed = with_service(seen(by_rank(), {survivor, lost}));
    const api::Status next = status_after(observed, reconcile(observed));
    EXPECT_EQ(next.phase, Phase::kRestarting) << test_case.name;
    EXPECT_EQ(next.restarts.charged, 1) << test_case.name;
    // The loss has been counted when its replacement was recorded.
    const Observed pending = with_service(seen(replacing(replacement(lost.uid)), {survivor}));
    const Plan plan = reconcile(pending);
    const api::Status later = status_after(pending, plan);
    EXPECT_EQ(later.phase, Phase::kRestarting) << test_case.name;
    EXPECT_EQ(later.restarts.charged, 0) << test_case.name;
    EXPECT_THAT(later.attempts.at(0).message, HasSubstr("Service was replaced")) << test_case.name;
    for (const CreatePod& created : only<CreatePod>(plan)) EXPECT_EQ(created.attempt, 1) << test_case.name;
  }
}

TEST(ReconcileReplace, ANewPodThatHasTheKeyOfTheOthersJoins) {
  Observed observed = seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).running(), pod(0, 1).uid("another")});
  observed.services[0].regroup_key = "replaced since then";
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  observed.pods[1].regroup_key = "replaced before";
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRestarting);
}

TEST(ReconcileReplace, PodsWithDifferentKeysRestart) {
  for (const Phase phase : {Phase::kPending, Phase::kRunning}) {
    const std::vector<Pod> pods = {pod(0, 0).running(), pod(0, 1).running().regroup_key("another")};
    const Observed observed = seen(by_rank(phase), pods);
    const Plan plan = reconcile(observed);
    const api::Status next = status_after(observed, plan);
    EXPECT_EQ(next.phase, Phase::kRestarting);
    EXPECT_EQ(next.restarts.total, 1);
    EXPECT_EQ(next.restarts.charged, 0);
    EXPECT_EQ(next.attempts.at(0).reason, "ServiceReplaced");
    expect_settled(observed, plan);
    const Observed group = seen(by_rank(phase).restart_scope(api::RestartScope::kGroup), pods);
    EXPECT_EQ(status_after(group, reconcile(group)).phase, Phase::kRunning);
  }
}

// Pods that an earlier version of the operator created lack the annotation, and have the token of the others.
TEST(ReconcileReplace, PodsWithoutAnAnnotationAreNotKnownToDiffer) {
  const Observed one = seen(by_rank(), {pod(0, 0).running(), pod(0, 1).running().regroup_key("")});
  EXPECT_EQ(status_after(one, reconcile(one)).phase, Phase::kRunning);
  const Observed replaced = seen(replacing(replacement("uid-of-bert-0-1")),
                                 {pod(0, 0).running().regroup_key(""), pod(0, 1).uid("another").regroup_key("")});
  EXPECT_EQ(status_after(replaced, reconcile(replaced)).phase, Phase::kRunning);
}

TEST(ReconcileReplace, FailsImmediatelyOnPermanentFailure) {
  const Observed observed = seen(by_rank(), {pod(0, 0).running(), pod(0, 1).ended(78)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kFailed);
}

// Replacements and restarts share failurePolicy.maxRestarts.
TEST(ReconcileReplace, CountsTowardsMaxRestarts) {
  Job job = by_rank().max_restarts(2).restarts(1);
  const std::vector<Pod> pods = {pod(0, 0).running(), pod(0, 1).running().deleting()};
  EXPECT_EQ(status_after(seen(job, pods), reconcile(seen(job, pods))).recoveries->charged, 1);
  job.status.recoveries =
      api::Recoveries{.last_ranks = "", .last_reason = "", .last_time = {}, .pods = 1, .charged = 1};
  const api::Status failed = status_after(seen(job, pods), reconcile(seen(job, pods)));
  EXPECT_EQ(condition_of(failed, Phase::kFailed).reason, "MaxRestartsExceeded");
  job.spec.failure_policy.max_restarts = 3;
  EXPECT_EQ(status_after(seen(job, pods), reconcile(seen(job, pods))).recoveries->charged, 2);
}

TEST(ReconcileReplace, IsNotChargedAfterProgress) {
  Observed observed =
      seen(by_rank().max_restarts(1).restarts(1), {pod(0, 0).running(), pod(0, 1).running().deleting()});
  observed.progress.emplace().step = 5;
  const Plan plan = reconcile(observed);
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.recoveries->pods, 1);
  EXPECT_EQ(next.recoveries->charged, 0);
  EXPECT_EQ(next.restarts.after_progress->count, 1);
  EXPECT_THAT(only<EmitEvent>(plan).at(0).message, HasSubstr("this does not count as a restart"));
}

TEST(ReconcileReplace, MessageOfARestartCountsReplacements) {
  const Observed observed = seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).running(), pod(0, 1).ended(1)});
  const Plan plan = reconcile(seen(observed.job, {pod(0, 0).running(), pod(0, 1).uid("another").ended(1)}));
  EXPECT_THAT(only<EmitEvent>(plan).at(0).message, HasSubstr("restart 2 of 3 as attempt 1"));
}

TEST(ReconcileReplace, DeletesTheLostPodAndCreatesItOnce) {
  const Job job = replacing(replacement("uid-of-bert-0-1"));
  const Pod survivor = pod(0, 0).running();
  EXPECT_THAT(names(reconcile(seen(job, {survivor, pod(0, 1).ended(137)}))),
              ElementsAre("PatchStatus Running 0", "DeletePod bert-0-1"));
  EXPECT_THAT(only<DeletePod>(reconcile(seen(job, {survivor, pod(0, 1).running().deleting()}))), IsEmpty());
  const Plan plan = reconcile(seen(job, {survivor}));
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0", "CreatePod bert-0-1"));
  EXPECT_TRUE(only<CreatePod>(plan).at(0).is_replacement);
  const Observed created = seen(job, {survivor, pod(0, 1).uid("another")});
  EXPECT_THAT(only<CreatePod>(reconcile(created)), IsEmpty());
  EXPECT_EQ(status_after(created, reconcile(created)).replacements.size(), 1U) << "it has not started";
}

TEST(ReconcileReplace, RemovesTheRecordOnceTheNewPodHasStarted) {
  const Observed observed =
      seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).running(), pod(0, 1).uid("another").running()});
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_THAT(next.replacements, IsEmpty());
  EXPECT_EQ(next.recoveries->pods, 1);
  EXPECT_EQ(next.phase, Phase::kRunning);
}

TEST(ReconcileReplace, CountsTheLossOfTheNewPod) {
  const Observed observed = seen(replacing(replacement("uid-of-bert-0-1")),
                                 {pod(0, 0).running(), pod(0, 1).uid("another").running().deleting()});
  const api::Status next = status_after(observed, reconcile(observed));
  ASSERT_EQ(next.replacements.size(), 1U);
  EXPECT_EQ(next.replacements[0].pod_uid, "another");
  EXPECT_EQ(next.recoveries->pods, 2);
}

// The new pod has no node, or the old one remains on a dead node.
TEST(ReconcileReplace, RestartsTheGroupIfTheNewPodIsLate) {
  for (const Pod& second : {pod(0, 1).uid("another").build(), pod(0, 1).running().deleting().build()}) {
    Job job = replacing(replacement("uid-of-bert-0-1", at_second(50)));
    job.spec.stall_policy.timeout_seconds = 20;
    Observed observed = seen(job, {pod(0, 0).running(), second});
    EXPECT_EQ(reconcile(observed).requeue_after, seconds(10));
    observed.now = at_second(70);
    const api::Status next = status_after(observed, reconcile(observed));
    EXPECT_EQ(next.phase, Phase::kRestarting);
    EXPECT_EQ(next.restarts.total, 1);
    EXPECT_EQ(next.restarts.charged, 0) << "the replacement was counted";
    EXPECT_THAT(next.attempts.at(0).message, HasSubstr("was deleted; its replacement did not start within 20 s"));
    EXPECT_THAT(next.replacements, IsEmpty());
  }
}

// A pod of another owner has the name.
TEST(ReconcileReplace, RestartsTheGroupIfTheNameIsTaken) {
  Job job = replacing(replacement("uid-of-bert-0-1"));
  job.spec.stall_policy.timeout_seconds = 20;
  Observed observed = seen(job, {pod(0, 0).running(), pod(0, 1).uid("another").owner("other")});
  observed.now = at_second(70);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).phase, Phase::kRestarting);
  EXPECT_THAT(only<ConfirmPodAbsent>(plan), IsEmpty()) << "the pod of the other owner remains";
}

TEST(ReconcileReplace, GivingUpWhileAReplacementIsPendingIsNotChargedAgain) {
  for (const Pod& second : {pod(0, 1).uid("another").build(), pod(0, 1).running().deleting().build()}) {
    for (const int exit_code : {75, 76}) {
      Observed observed = seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).ended(exit_code), second});
      observed.job.spec.failure_policy.max_restarts = 1;
      observed.now = at_second(69);  // no other cause was reported within the grace period
      const Plan plan = reconcile(observed);
      const api::Status next = status_after(observed, plan);
      EXPECT_EQ(next.phase, Phase::kRestarting);
      EXPECT_EQ(next.restarts.charged, 0);
      EXPECT_EQ(next.restarts.reasons.at(0).reason, "PodLost");
      EXPECT_EQ(next.attempts.at(0).pod, "bert-0-1");
      EXPECT_THAT(next.attempts.at(0).message,
                  HasSubstr("was deleted; the other pods ended before its replacement started"));
      EXPECT_EQ(only<ConfirmPodAbsent>(plan).at(0).except_uid, "uid-of-bert-0-0");
    }
  }
}

TEST(ReconcileReplace, OtherFailuresWhileAReplacementIsPendingAreCharged) {
  const Pod pending = pod(0, 1).uid("another");
  Observed observed = seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).ended(1), pending});
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.charged, 1);
  observed = seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).ended(78), pending});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kFailed);
  observed = seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).ended(76), pod(0, 1).uid("another").running()});
  observed.now = at_second(100'000);
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.charged, 1) << "the new pod has started";
}

// No operator ran for a long time.
TEST(ReconcileReplace, PodThatHasStartedIsNotLate) {
  Observed observed =
      seen(replacing(replacement("uid-of-bert-0-1")), {pod(0, 0).running(), pod(0, 1).uid("another").running()});
  observed.now = at_second(100'000);
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.total, 0);
}

TEST(ReconcileReplace, IgnoresRecordsOfEarlierAttempts) {
  Job job = by_rank(Phase::kRestarting);
  job.status.attempt = 1;
  job.status.replacements = {replacement("uid-of-bert-0-1")};
  const Observed observed = seen(job, {pod(1, 0).running()});
  const Plan plan = reconcile(observed);
  EXPECT_THAT(status_after(observed, plan).replacements, IsEmpty());
  ASSERT_EQ(only<CreatePod>(plan).size(), 1U);
  EXPECT_FALSE(only<CreatePod>(plan).at(0).is_replacement);
}

}  // namespace
}  // namespace oarlock::test
