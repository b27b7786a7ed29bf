// Explores every state that small jobs can reach, with all events in every order. Searches that cannot be complete
// cover the nearest states, and OARLOCK_MODEL_SCALE times as many of them (default: 1).
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/unit/operator/model_options.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT

struct Setup {
  const char* name;
  ModelOptions options;
  bool is_bounded = false;  // not all states can be searched; the search covers the nearest ones
};

std::ostream& operator<<(std::ostream& out, const Setup& setup) { return out << setup.name; }

size_t scale() {
  const char* const value = std::getenv("OARLOCK_MODEL_SCALE");
  return value == nullptr ? 1 : std::stoul(value);
}

ModelOptions nearest(ModelOptions options, size_t states) { return bounded(std::move(options), states * scale()); }

std::vector<Setup> setups() {
  const JobBuilder plain = JobBuilder().backoff_seconds(0);
  const auto job = [&](int nodes, int restarts) { return JobBuilder(plain).nodes(nodes).max_restarts(restarts); };
  // With a time after which a replacement that has not started counts as late.
  const auto by_rank = [](JobBuilder of) { return of.restart_scope(api::RestartScope::kRank).stall_seconds(20); };
  const auto elastic = [](JobBuilder of) { return elastic_of(of, 10); };
  return {
      {.name = "OnePod", .options = with_exits(with(job(1, 2), 2), {1, 78})},
      {.name = "OnePodWithRepeatedFailures", .options = nearest(with(job(1, 2), 4), 75'000), .is_bounded = true},
      {.name = "TwoPods", .options = nearest(with_exits(with(job(2, 2), 3), {1, 76}), 125'000), .is_bounded = true},
      {.name = "TwoPodsOneFault", .options = with(job(2, 1), 1)},
      {.name = "ReplacedPod", .options = with_exits(with(by_rank(job(2, 1)), 1), {1, 137})},
      {.name = "ReplacedPods",
       .options = nearest(with_exits(with(by_rank(job(2, 2)), 2), {76, 137}), 100'000),
       .is_bounded = true},
      {.name = "ThreePods", .options = nearest(with(job(3, 2), 3), 125'000), .is_bounded = true},
      {.name = "NameConflict", .options = with_foreign(with(job(1, 1), 2), "bert-1-0")},
      {.name = "Deadline", .options = with(job(1, 1).deadline_seconds(20), 1)},
      {.name = "TimeToLive", .options = with(job(1, 1).ttl_seconds(10), 2)},
      {.name = "Backoff", .options = with(JobBuilder().nodes(1).max_restarts(2), 2, false)},
      {.name = "CleanAll", .options = with(job(2, 0).clean_pod_policy(api::CleanPodPolicy::kAll), 1)},
      {.name = "Stall", .options = with_steps(with(job(1, 1).stall_seconds(20), 1))},
      {.name = "StallRestarts",
       .options = nearest(with_steps(with(job(1, 1).stall_seconds(20, api::StallAction::kRestart), 1)), 100'000),
       .is_bounded = true},
      {.name = "Progress",
       .options = nearest(with_steps(with(job(1, 0).max_total_restarts(1).stall_seconds(20), 2, false)), 100'000),
       .is_bounded = true},
      {.name = "NoProgress",
       .options = nearest(with_steps(with(job(1, 2).max_failures_at_step(2).stall_seconds(20), 2, false)), 100'000),
       .is_bounded = true},
      {.name = "PendingTimeout",
       .options = nearest(with(job(2, 1).pending_timeout(20), 1), 100'000),
       .is_bounded = true},
      {.name = "ElasticPendingTimeout",
       .options = nearest(with(elastic(job(2, 1).pending_timeout(20)), 1), 50'000),
       .is_bounded = true},
      {.name = "Queue", .options = with(job(1, 1).queue("team"), 1)},
      {.name = "QueueTwoFaults", .options = nearest(with(job(1, 1).queue("team"), 2), 200'000), .is_bounded = true},
      {.name = "QueueOfTwo", .options = nearest(with(job(2, 1).queue("team"), 1), 100'000), .is_bounded = true},
      {.name = "QueueElastic",
       .options = nearest(with(elastic(job(2, 1).queue("team")), 1), 100'000),
       .is_bounded = true},
      {.name = "QueueGrowth",
       .options = nearest(from_running(with(elastic(job(2, 1).queue("team")), 1)), 100'000),
       .is_bounded = true},
      {.name = "Gang", .options = nearest(with_gangs(with(job(2, 1), 1)), 200'000)},
      {.name = "GangReplacedPod",
       .options = nearest(with_gangs(with_exits(with(by_rank(job(2, 1)), 1), {137})), 200'000)},
      // Pods of unknown age avoid nodes less immediately; the others after their pending time-out.
      {.name = "OnlyNode",
       .options = nearest(with_cluster_nodes(with(job(1, 2).avoid_nodes(1), 2, false), 1), 400'000)},
      {.name = "OnlyNodeFailsOften",
       .options = nearest(with_cluster_nodes(with(job(1, 3).avoid_nodes(2).pending_timeout(20), 3, false), 1), 100'000),
       .is_bounded = true},
      {.name = "BadNodeOfTwo",
       .options =
           nearest(with_cluster_nodes(with(job(1, 2).avoid_nodes(1, 30).pending_timeout(20), 2, false), 2), 50'000),
       .is_bounded = true},
      {.name = "BadNodeReplacedPod",
       .options = nearest(
           with_cluster_nodes(with_exits(with(by_rank(job(2, 2)).avoid_nodes(1).pending_timeout(20), 1), {137}), 1),
           50'000),
       .is_bounded = true},
      {.name = "Profile", .options = with_profile(with(job(1, 1), 2), 1)},
      {.name = "LateProfile", .options = with_profile(with(job(1, 1), 2), 0)},
      {.name = "ProfileOfTwo", .options = nearest(with_profile(with(job(2, 1), 2), 1), 100'000), .is_bounded = true},
      {.name = "NetworkPolicies", .options = with_policies(with(job(1, 1), 2))},
      {.name = "NetworkPoliciesCleanAll",
       .options = with_policies(with(job(2, 0).clean_pod_policy(api::CleanPodPolicy::kAll), 1))},
      {.name = "Elastic", .options = nearest(with(elastic(job(2, 1)), 1), 200'000), .is_bounded = true},
      {.name = "ElasticTwoFaults", .options = nearest(with(elastic(job(2, 1)), 2), 100'000), .is_bounded = true},
      {.name = "ElasticReplacedPod",
       .options = nearest(with_exits(with(elastic(by_rank(job(2, 1))), 1), {137}), 100'000),
       .is_bounded = true},
      {.name = "InPlace",
       .options =
           nearest(from_running(with_steps(with_exits(with(elastic(by_rank(job(2, 1))), 1, false), {137}))), 100'000),
       .is_bounded = true},
      {.name = "InPlaceDisconnected",
       .options = nearest(
           from_running(with_disconnects(with_steps(with_exits(with(elastic(by_rank(job(2, 1))), 1, false), {})))),
           100'000),
       .is_bounded = true},
      {.name = "IgnoredExitCode",
       .options = with_sidecars(with_exits(with(job(1, 1).rule(ignores_exit_code(3)), 1, false), {3}))},
      {.name = "Rank0", .options = with(job(2, 1).success_policy(api::SuccessPolicy::kRank0), 1)},
  };
}

class ModelCheck : public ::testing::TestWithParam<Setup> {};

TEST_P(ModelCheck, HoldsInEveryReachableState) {
  const auto begin = std::chrono::steady_clock::now();
  const ModelResult result = check_model(GetParam().options, policies());
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.is_complete, !GetParam().is_bounded) << result.states << " states";
  EXPECT_TRUE(result.saw_complete || GetParam().is_bounded);
  EXPECT_TRUE(result.saw_deleted);
  EXPECT_TRUE(result.saw_suspended);
  EXPECT_EQ(result.saw_stalled, GetParam().options.moves.steps);
  const bool regroups = GetParam().options.starts_running && GetParam().options.moves.steps;
  EXPECT_EQ(result.saw_shrunk, regroups);
  EXPECT_EQ(result.saw_grown, regroups);
  EXPECT_EQ(result.saw_disconnected, GetParam().options.moves.disconnects);
  std::cout << "states " << result.states << ", worlds " << result.worlds << ", transitions " << result.transitions
            << ", restarts " << result.most_restarts << ", "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << " s\n";
}

INSTANTIATE_TEST_SUITE_P(All, ModelCheck, ::testing::ValuesIn(setups()),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace oarlock::test
