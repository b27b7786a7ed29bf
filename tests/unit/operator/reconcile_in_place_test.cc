// Elastic jobs whose launchers continue with fewer nodes in place, and take replacements of lost pods in.
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "tests/support/sim_cluster.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kNoNodeYet[] = "0/1 nodes are available: 1 node(s) were unschedulable";
constexpr int kShrinkAfter = 240;
// The newest loss is this long ago when the operator stops waiting for a report. Before stallPolicy.timeoutSeconds.
constexpr int kGivesUpAfter = kShrinkAfter + static_cast<int>(kShrinkInPlaceTime.count());

JobBuilder in_place_job(int nodes = 2, int min_nodes = 1) {
  return JobBuilder().nodes(nodes).elastic(min_nodes, kShrinkAfter).restart_scope(api::RestartScope::kRank);
}

api::Replacement lost_pod(int node_rank, int seconds_ago) {
  return {.node_rank = node_rank,
          .attempt = 1,
          .pod_uid = "lost",
          .time = at_second(60 - seconds_ago),
          .reason = "PodDeleted",
          .message = "the pod was deleted"};
}

// An attempt that runs with all nodes, of which the status records the active ones.
Job in_place(const Job& of, std::vector<api::Replacement> lost, std::optional<int> active = std::nullopt) {
  Job job = JobBuilder(of.metadata.name).phase(Phase::kRunning, 1);
  job.spec = of.spec;
  api::GroupSize size;
  size.attempt = 1;
  size.nodes = size.wanted = job.spec.nodes;
  size.launchers = make_launcher_bounds(job, job.spec.nodes);
  size.active_nodes = active;
  job.status.elastic = size;
  job.status.replacements = std::move(lost);
  return job;
}

// Rank 0 was polled now, and reported a group of this many ranks.
Observed with_report(Observed observed, int world_size, const std::string& phase = "train") {
  RankStatus& rank = observed.progress.emplace();
  rank.attempt = 1;
  rank.world_size = world_size;
  rank.phase = phase;
  observed.last_poll = StatusPoll{observed.now, true};
  return observed;
}

Observed missing_node(int seconds_ago, std::optional<int> active = std::nullopt) {
  return seen(in_place(in_place_job(), {lost_pod(1, seconds_ago)}, active),
              {pod(1, 0).running(), pod(1, 1).unschedulable(kNoNodeYet)});
}

std::optional<int> active_after(const Observed& observed) {
  return status_after(observed, reconcile(observed)).elastic.value_or(api::GroupSize{}).active_nodes;
}

int attempt_after(const Observed& observed) { return status_after(observed, reconcile(observed)).attempt; }

std::vector<EmitEvent> events_of(const Observed& observed) { return only<EmitEvent>(reconcile(observed)); }

// ---- The launchers' variables

TEST(InPlace, PodsHaveTheBoundsThatTheStatusRecords) {
  const Observed observed = seen(in_place_job(3, 2));
  const Plan plan = reconcile(observed);
  const api::LauncherBounds bounds{2, kShrinkAfter};
  EXPECT_EQ(status_after(observed, plan).elastic->launchers, bounds);
  ASSERT_EQ(only<CreatePod>(plan).size(), 3U);
  for (const CreatePod& pod : only<CreatePod>(plan)) EXPECT_EQ(pod.launchers, bounds);
}

// A launcher with other bounds than the others could train after they have left out its node.
TEST(InPlace, ReplacementHasTheBoundsOfItsAttempt) {
  Observed observed = seen(in_place(in_place_job(), {lost_pod(1, 10)}), {pod(1, 0).running()});
  observed.job.spec.elastic->shrink_after_seconds = 30;
  EXPECT_EQ(only<CreatePod>(reconcile(observed)).at(0).launchers, (api::LauncherBounds{1, kShrinkAfter}));
  observed.job.status.elastic->launchers.reset();  // an earlier version of the operator created the pods
  EXPECT_EQ(only<CreatePod>(reconcile(observed)).at(0).launchers, std::nullopt);
}

TEST(InPlace, NextAttemptHasTheBoundsOfTheSpec) {
  Observed observed = seen(in_place(in_place_job(3), {}), {pod(1, 0).running(), pod(1, 1).ended(1), pod(1, 2)});
  observed.job.spec.elastic->min_nodes = 2;
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).elastic->launchers, (api::LauncherBounds{2, kShrinkAfter}));
  for (const CreatePod& pod : only<CreatePod>(plan)) EXPECT_EQ(pod.launchers->min_nodes, 2);
}

TEST(InPlace, OtherGroupsHaveNoBounds) {
  EXPECT_FALSE(make_launcher_bounds(in_place_job(2, 2), 2)) << "minNodes is the number of nodes";
  EXPECT_FALSE(make_launcher_bounds(in_place_job(), 1)) << "one node";
  EXPECT_FALSE(make_launcher_bounds(in_place_job().max_restarts(0), 2));
  EXPECT_FALSE(make_launcher_bounds(in_place_job().restart_scope(api::RestartScope::kGroup), 2));
  EXPECT_FALSE(make_launcher_bounds(JobBuilder().nodes(2).restart_scope(api::RestartScope::kRank), 2));
  EXPECT_EQ(make_launcher_bounds(in_place_job().elastic(1, 2'000'000'000), 2)->shrink_after_seconds, 1'000'000)
      << "the launcher's limit";
}

TEST(InPlace, PodsReceiveTheVariablesWithTheToken) {
  const auto variables = [](const RegroupSecret& secret, const std::optional<api::LauncherBounds>& bounds) {
    std::map<std::string, std::string> out;
    const auto pod = PodFactory(in_place_job(), 0, 2, {}, secret, bounds).pod(1);
    for (const auto& one : pod["spec"]["containers"][0]["env"])
      out[one["name"]] = one.contains("value") ? one["value"].get<std::string>() : "";
    return out;
  };
  const auto set = variables({"token", "key"}, api::LauncherBounds{1, 90});
  EXPECT_EQ(set.at("OARLOCK_MIN_NODES"), "1");
  EXPECT_EQ(set.at("OARLOCK_SHRINK_AFTER"), "90");
  EXPECT_FALSE(variables({"token", "key"}, std::nullopt).contains("OARLOCK_MIN_NODES"));
  EXPECT_FALSE(variables({}, api::LauncherBounds{1, 90}).contains("OARLOCK_SHRINK_AFTER"));
}

// ---- Reports of rank 0

TEST(InPlace, ContinuesWhileRank0ReportsFewerNodes) {
  const Observed observed = with_report(missing_node(kShrinkAfter + 5), 1);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(attempt_after(observed), 1);
  EXPECT_EQ(active_after(observed), 1);
  const std::vector<EmitEvent> events = only<EmitEvent>(plan);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].reason, "ShrunkInPlace");
  EXPECT_THAT(events[0].message, HasSubstr("1 of 2 nodes continue"));
  expect_settled(observed, plan);
  // Hours later, and without another event.
  Observed later = after(observed, plan);
  later.now += std::chrono::hours(5);
  later.last_poll->sent_at = later.now;
  later.progress->step = 100;
  EXPECT_EQ(attempt_after(later), 1);
  EXPECT_THAT(events_of(later), IsEmpty());
}

TEST(InPlace, GrowsWhenRank0ReportsAllNodes) {
  const Job job = in_place(in_place_job(), {lost_pod(1, 500)}, 1);
  const std::vector<Pod> pods = {pod(1, 0).running(), pod(1, 1).running()};
  EXPECT_EQ(active_after(with_report(seen(job, pods), 1)), 1) << "the new pod has started and has not joined";
  EXPECT_THAT(events_of(with_report(seen(job, pods), 1)), IsEmpty());
  const Observed observed = with_report(seen(job, pods), 2);
  const Plan plan = reconcile(observed);
  EXPECT_EQ(active_after(observed), 2);
  EXPECT_THAT(status_after(observed, plan).replacements, IsEmpty());
  const std::vector<EmitEvent> events = only<EmitEvent>(plan);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].reason, "GrownInPlace");
  EXPECT_THAT(events_of(after(observed, plan)), IsEmpty());
}

TEST(InPlace, TheFirstReportCausesNoEvent) {
  const Observed observed =
      with_report(seen(in_place(in_place_job(), {}), {pod(1, 0).running(), pod(1, 1).running()}), 2);
  EXPECT_EQ(active_after(observed), 2);
  EXPECT_THAT(events_of(observed), IsEmpty());
}

TEST(InPlace, CountsNodesOfSeveralRanks) {
  const Job job = in_place(in_place_job(3).processes_per_node(4), {lost_pod(2, 500)});
  const std::vector<Pod> pods = {pod(1, 0).running(), pod(1, 1).running(), pod(1, 2)};
  EXPECT_EQ(active_after(with_report(seen(job, pods), 8)), 2);
  for (const int invalid : {0, -4, 7, 16, 2'000'000'000})
    EXPECT_EQ(active_after(with_report(seen(job, pods), invalid)), std::nullopt) << invalid;
}

// A group that forms has no size, and rank 0 may be a new process.
TEST(InPlace, IgnoresReportsOfOtherGroups) {
  EXPECT_EQ(active_after(with_report(missing_node(500, 1), 2, "rendezvous")), 1);
  Observed old = with_report(missing_node(500, 1), 2);
  old.progress->attempt = 0;
  EXPECT_EQ(active_after(old), 1);
  Observed other = with_report(
      seen(JobBuilder().nodes(2).elastic(1).phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).running()}), 1);
  other.progress->attempt = 0;
  EXPECT_EQ(active_after(other), std::nullopt) << "its launchers need all nodes";
}

TEST(InPlace, AShrunkGroupDoesNotCountAsReplacedRank) {
  Observed observed = with_report(missing_node(kShrinkAfter + 5), 1);
  observed.progress->recoveries = 1;
  EXPECT_EQ(status_after(observed, reconcile(observed)).recoveries->total, 1);
  ASSERT_EQ(events_of(observed).size(), 1U);
  EXPECT_EQ(events_of(observed)[0].reason, "ShrunkInPlace");
}

// ---- Without such a report

TEST(InPlace, RestartsTheGroupWithoutAReport) {
  struct Case {
    const char* name;
    Observed observed;
  };
  Observed no_response = missing_node(kGivesUpAfter);
  no_response.last_poll = StatusPoll{no_response.now, false};
  Observed no_rank0 = missing_node(kGivesUpAfter);
  no_rank0.pods[0].pod_ip.clear();
  const Case cases[] = {
      {.name = "all nodes", .observed = with_report(missing_node(kGivesUpAfter, 2), 2)},
      {.name = "no response", .observed = no_response},
      {.name = "rank 0 cannot be polled", .observed = no_rank0},
  };
  for (const Case& one : cases) {
    const Observed& observed = one.observed;
    const api::Status next = status_after(observed, reconcile(observed));
    EXPECT_EQ(next.attempt, 2) << one.name;
    EXPECT_EQ(next.elastic->nodes, 1) << one.name;
    EXPECT_EQ(next.elastic->last_reason, kShrunk) << one.name;
    EXPECT_EQ(next.elastic->active_nodes, std::nullopt) << one.name;
    EXPECT_EQ(next.elastic->launchers, std::nullopt) << one.name;
    EXPECT_EQ(next.restarts.charged, 0) << one.name;
    Observed earlier = observed;
    earlier.now -= seconds(1);
    if (earlier.last_poll) earlier.last_poll->sent_at = earlier.now;
    EXPECT_EQ(attempt_after(earlier), 1) << one.name;
    earlier = after(earlier, reconcile(earlier));
    EXPECT_EQ(reconcile(earlier).requeue_after, seconds(1)) << one.name;
  }
}

// An operator that has just started must not restart a group that continued meanwhile.
TEST(InPlace, PollsRank0BeforeItGivesUp) {
  Observed observed = missing_node(kGivesUpAfter + 1000);
  EXPECT_EQ(attempt_after(observed), 1);
  Observed settled = after(observed, reconcile(observed));
  EXPECT_EQ(reconcile(settled).requeue_after, kStaleCacheRequeue);
  settled.last_poll = StatusPoll{settled.now - seconds(5000), true};
  EXPECT_EQ(attempt_after(settled), 1) << "the poll was sent before the deadline";
  EXPECT_EQ(attempt_after(with_report(settled, 1)), 1);
  EXPECT_EQ(attempt_after(with_report(settled, 2)), 2);
}

TEST(InPlace, AReportCountsUntilTheJobIsStalled) {
  Observed observed = missing_node(5000, 1);
  observed.last_poll = StatusPoll{observed.now, false};
  EXPECT_EQ(attempt_after(observed), 1);
  observed.job.status.phase = Phase::kStalled;
  EXPECT_EQ(attempt_after(observed), 2);
  observed.last_poll->answered = true;  // a long evaluation
  EXPECT_EQ(attempt_after(observed), 1);
}

// The next loss begins the wait again.
TEST(InPlace, AReportOfMoreNodesThanAreLeftIsOld) {
  for (const int seconds_ago : {kGivesUpAfter - 1, kGivesUpAfter}) {
    const Observed observed = with_report(
        seen(in_place(in_place_job(3), {lost_pod(1, 5000), lost_pod(2, seconds_ago)}, 2),
             {pod(1, 0).running(), pod(1, 1).unschedulable(kNoNodeYet), pod(1, 2).unschedulable(kNoNodeYet)}),
        2);
    const bool is_due = seconds_ago == kGivesUpAfter;
    EXPECT_EQ(attempt_after(observed), is_due ? 2 : 1);
    EXPECT_EQ(attempt_after(with_report(observed, 1)), 1) << "both nodes are left out";
  }
}

TEST(InPlace, FewerNodesThanMinNodesDoNotCount) {
  const std::vector<Pod> pods = {pod(1, 0).running(), pod(1, 1).running(), pod(1, 2).unschedulable(kNoNodeYet)};
  const Job job = in_place(in_place_job(3, 2), {lost_pod(2, kGivesUpAfter)});
  EXPECT_EQ(attempt_after(with_report(seen(job, pods), 1)), 2);
  EXPECT_EQ(attempt_after(with_report(seen(job, pods), 2)), 1);
}

// Node rank 0 is in every group.
TEST(InPlace, TheLossOfNodeRank0RestartsTheGroup) {
  const std::vector<Pod> pods = {pod(1, 0).unschedulable(kNoNodeYet), pod(1, 1).running()};
  const Observed observed = with_report(seen(in_place(in_place_job(), {lost_pod(0, kGivesUpAfter)}, 1), pods), 1);
  EXPECT_EQ(attempt_after(observed), 2);
}

TEST(InPlace, AGroupOfAnotherKeyRestarts) {
  Observed observed = with_report(missing_node(5000, 1), 1);
  observed.pods.pop_back();
  EXPECT_EQ(attempt_after(observed), 1);
  observed.services[0].regroup_key = "another";
  EXPECT_EQ(attempt_after(observed), 2) << "a new pod could not join";
}

// ---- Launchers that lose the connection to node rank 0

// The pod of node rank 1, whose launcher ended when the observed time was 20 s earlier.
Pod disconnected(SystemTime at = at_second(40)) { return pod(1, 1).ended(76, kDisconnectedMessage).finished_at(at); }

Observed left_by_node_1(const Pod& left = disconnected()) {
  return with_report(seen(in_place(in_place_job(), {}, 2), {pod(1, 0).running(), left}), 1);
}

// Rank 0 trains with fewer nodes, waits for the node in a group that forms, or still waits in a collective.
TEST(InPlace, ReplacesThePodOfADisconnectedLauncher) {
  for (const auto& [world_size, phase] : {std::pair(1, "train"), {2, "rendezvous"}, {2, "train"}}) {
    Observed observed = with_report(left_by_node_1(), world_size, phase);
    const Plan plan = reconcile(observed);
    const api::Status next = status_after(observed, plan);
    EXPECT_EQ(next.attempt, 1) << phase;
    EXPECT_EQ(next.restarts.total, 0) << phase;
    ASSERT_EQ(next.replacements.size(), 1U) << phase;
    EXPECT_EQ(next.replacements[0].pod_uid, observed.pods[1].uid);
    EXPECT_EQ(next.replacements[0].reason, "Disconnected");
    EXPECT_THAT(next.replacements[0].message, HasSubstr("node rank 0 has not answered"));
    EXPECT_EQ(next.recoveries->charged, 1) << phase;
    EXPECT_THAT(names(plan), Contains("EmitEvent ReplacingPod"));
    expect_settled(observed, plan);
    EXPECT_THAT(names(reconcile(after(observed, plan))), Contains("DeletePod bert-1-1"));
  }
}

TEST(InPlace, WaitsForTheResponseOfRank0) {
  struct Case {
    const char* name;
    Observed observed;
    int wait;
  };
  Observed not_polled = left_by_node_1();
  not_polled.last_poll->sent_at = at_second(49);
  Observed never_polled = left_by_node_1();
  never_polled.last_poll.reset();
  Observed silent = left_by_node_1();
  silent.last_poll->answered = false;
  const Case cases[] = {
      {.name = "the exit is recent", .observed = left_by_node_1(disconnected(at_second(57))), .wait = 7},
      {.name = "polled before", .observed = not_polled, .wait = 1},
      {.name = "not polled", .observed = never_polled, .wait = 1},
      {.name = "one response is missing", .observed = silent, .wait = 1},
  };
  for (const Case& one : cases) {
    const Plan plan = reconcile(one.observed);
    EXPECT_EQ(plan.state, PlanState::kWait) << one.name;
    EXPECT_THAT(names(plan), IsEmpty()) << one.name;
    EXPECT_EQ(plan.requeue_after, seconds(one.wait)) << one.name;
    EXPECT_THAT(plan.reason, HasSubstr("waiting for a response of rank 0")) << one.name;
  }
}

// The exit is a collateral failure of a group that does not exist any more.
TEST(InPlace, RestartsTheGroupThatADisconnectedLauncherHasLeft) {
  struct Case {
    const char* name;
    Observed observed;
  };
  Observed silent = left_by_node_1(disconnected(at_second(30)));
  silent.last_poll->answered = false;
  Observed other_attempt = left_by_node_1(disconnected(at_second(30)));
  other_attempt.progress->attempt = 0;
  Observed ended = left_by_node_1();
  ended.pods[0] = pod(1, 0).ended(76).finished_at(at_second(45));
  Observed lost = left_by_node_1();
  lost.pods[0] = pod(1, 0).running().deleting();
  Observed replaced = left_by_node_1();
  replaced.job.status.replacements = {lost_pod(0, 30)};
  replaced.pods[0] = pod(1, 0).unschedulable(kNoNodeYet);
  Observed no_bounds = left_by_node_1();
  no_bounds.job.status.elastic->launchers.reset();
  Observed other_reason = left_by_node_1();
  other_reason.pods[1] = pod(1, 1).ended(76, R"({"reason":"PeerLost"})").finished_at(at_second(40));
  Observed other_code = left_by_node_1();
  other_code.pods[1] = pod(1, 1).ended(1, kDisconnectedMessage).finished_at(at_second(40));
  const Case cases[] = {
      {.name = "rank 0 does not respond", .observed = silent},
      {.name = "rank 0 of another attempt responds", .observed = other_attempt},
      {.name = "node rank 0 has ended", .observed = ended},
      {.name = "node rank 0 is lost", .observed = lost},
      {.name = "node rank 0 is being replaced", .observed = replaced},
      {.name = "its launchers need all nodes", .observed = no_bounds},
      {.name = "it lost another rank", .observed = other_reason},
      {.name = "another exit code", .observed = other_code},
      {.name = "a clock that is an hour ahead", .observed = left_by_node_1(disconnected(at_second(3660)))},
  };
  for (const Case& one : cases) {
    const api::Status next = status_after(one.observed, reconcile(one.observed));
    EXPECT_EQ(next.phase, Phase::kRestarting) << one.name;
    EXPECT_EQ(next.attempt, 2) << one.name;
  }
  const api::Status next = status_after(silent, reconcile(silent));
  EXPECT_EQ(next.restarts.reasons.at(0).reason, "PeerLost");
  EXPECT_EQ(next.restarts.charged, 1);
  EXPECT_EQ(next.attempts.back().pod, "bert-1-1");
}

TEST(InPlace, ReplacementsOfDisconnectedLaunchersAreBounded) {
  Observed observed = left_by_node_1();
  observed.job.spec.failure_policy.max_restarts = 1;
  observed.job.status.recoveries =
      api::Recoveries{.last_ranks = "", .last_reason = "", .last_time = {}, .pods = 1, .charged = 1};
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.phase, Phase::kFailed);
  EXPECT_THAT(condition_of(next, Phase::kFailed).reason, "MaxRestartsExceeded");
}

// A rule that fails the job, and one that makes such replacements free.
TEST(InPlace, RulesApplyToDisconnectedLaunchers) {
  for (const auto action : {api::FailureAction::kFail, api::FailureAction::kRestartFree}) {
    Observed observed = left_by_node_1();
    api::FailureRule& rule = observed.job.spec.failure_policy.rules.emplace_back();
    rule.action = action;
    rule.on_exit_codes = api::ExitCodeMatch{api::ExitCodeOperator::kIn, {76}};
    const api::Status next = status_after(observed, reconcile(observed));
    EXPECT_EQ(next.phase, action == api::FailureAction::kFail ? Phase::kFailed : Phase::kRunning);
    EXPECT_EQ(next.recoveries.value_or(api::Recoveries{}).charged, 0);
  }
}

TEST(InPlace, CompletesWithoutADisconnectedLauncher) {
  Observed observed = left_by_node_1();
  observed.job.status.elastic->active_nodes = 1;
  observed.pods[0] = pod(1, 0).ended(0);
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kComplete);
  observed.job.status.elastic->active_nodes = 2;
  observed.progress.reset();
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRestarting);
}

// ---- The rest of the attempt

// The missing pod is requested until it exists, and it waits for a node.
TEST(InPlace, KeepsTryingToCreateTheMissingPod) {
  Observed observed = with_report(missing_node(5000, 1), 1);
  EXPECT_THAT(names(reconcile(observed)), Not(Contains(HasSubstr("DeletePod"))));
  observed.pods.pop_back();
  observed.last_error = "exceeded quota";
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("CreatePod bert-1-1"));
  EXPECT_EQ(only<CreatePod>(plan).at(0).is_replacement, true);
  EXPECT_EQ(only<CreatePod>(plan).at(0).nodes, 2);
}

TEST(InPlace, AShrunkGroupCompletesWithItsRanks) {
  const auto ended = [](std::optional<int> active) {
    return seen(in_place(in_place_job(3), {lost_pod(2, 500)}, active),
                {pod(1, 0).ended(0), pod(1, 1).ended(0), pod(1, 2).unschedulable(kNoNodeYet)});
  };
  Observed observed = ended(2);
  const Plan plan = reconcile(observed);
  const api::Status next = status_after(observed, plan);
  EXPECT_EQ(next.phase, Phase::kComplete);
  EXPECT_THAT(condition_of(next, Phase::kComplete).message, HasSubstr("2 of 3 pods that were in the group"));
  EXPECT_THAT(names(plan), Contains("DeletePod bert-1-2"));
  observed.pods[1] = pod(1, 1).running();
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  EXPECT_NE(status_after(ended(3), reconcile(ended(3))).phase, Phase::kComplete) << "the lost rank was in the group";
}

// The group has trained since the loss, so that its end is another failure.
TEST(InPlace, AFailureOfAShrunkGroupIsCharged) {
  Observed observed = seen(in_place(in_place_job(), {lost_pod(1, 5000)}, 1),
                           {pod(1, 0).ended(75), pod(1, 1).unschedulable(kNoNodeYet)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.charged, 1);
  observed.job.status.elastic->active_nodes = 2;
  EXPECT_EQ(status_after(observed, reconcile(observed)).restarts.charged, 0);
}

}  // namespace
}  // namespace oarlock::test
