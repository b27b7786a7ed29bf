// Everything that can happen to small jobs, in every order.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/operator/model_options.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT

struct Setup {
  const char* name;
  ModelOptions options;
  bool is_bounded = false;  // there is more than can be searched; the nearest states are
};

std::ostream& operator<<(std::ostream& out, const Setup& setup) { return out << setup.name; }

std::vector<Setup> setups() {
  const JobBuilder plain = JobBuilder().backoff_seconds(0);
  const auto job = [&](int nodes, int restarts) { return JobBuilder(plain).nodes(nodes).max_restarts(restarts); };
  return {
      {"OnePod", with_exits(with(job(1, 2), 2), {1, 78})},
      {"OnePodFailsAgainAndAgain", bounded(with(job(1, 2), 4), 300000), true},
      {"TwoPods", bounded(with_exits(with(job(2, 2), 3), {1, 76}), 500000), true},
      {"TwoPodsOneFault", with(job(2, 1), 1)},
      {"ThreePods", bounded(with(job(3, 2), 3), 500000), true},
      {"ANameThatIsTaken", with_foreign(with(job(1, 1), 2), "bert-1-0")},
      {"Deadline", with(job(1, 1).deadline_seconds(20), 1)},
      {"TimeToLive", with(job(1, 1).ttl_seconds(10), 2)},
      {"Backoff", with(JobBuilder().nodes(1).max_restarts(2), 2, false)},
      {"CleanAll", with(job(2, 0).clean_pod_policy(api::CleanPodPolicy::kAll), 1)},
      {"Stall", with_steps(with(job(1, 1).stall_seconds(20), 1))},
      {"NetworkPolicies", with_policies(with(job(1, 1), 2))},
      {"NetworkPoliciesCleanAll", with_policies(with(job(2, 0).clean_pod_policy(api::CleanPodPolicy::kAll), 1))},
      {"Rank0", with(job(2, 1).success_policy(api::SuccessPolicy::kRank0), 1)},
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
  EXPECT_EQ(result.saw_stalled, GetParam().options.steps);
  std::cout << "states " << result.states << ", worlds " << result.worlds << ", transitions " << result.transitions
            << ", restarts " << result.most_restarts << ", "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << " s\n";
}

INSTANTIATE_TEST_SUITE_P(All, ModelCheck, ::testing::ValuesIn(setups()),
                         [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace oarlock::test
