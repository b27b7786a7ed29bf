// Explores every state of the regroup protocol that small jobs can reach, with all events in every order.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/model/regroup_model.h"

namespace oarlock::test {
namespace {

struct RegroupSetup {
  const char* name;
  RegroupModelOptions options;
  bool is_bounded = false;  // not all states can be searched; the search covers the nearest ones
};

std::ostream& operator<<(std::ostream& out, const RegroupSetup& setup) { return out << setup.name; }

class RegroupModel : public ::testing::TestWithParam<RegroupSetup> {};

TEST_P(RegroupModel, HoldsInEveryReachableState) {
  const auto begin = std::chrono::steady_clock::now();
  const RegroupModelResult result = check_regroup(GetParam().options);
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.is_complete, !GetParam().is_bounded) << result.states << " states";
  EXPECT_TRUE(result.saw_success || GetParam().is_bounded);
  EXPECT_TRUE(result.saw_recovery || GetParam().is_bounded);
  EXPECT_TRUE(result.saw_fallback);
  if (!GetParam().is_bounded) {
    EXPECT_EQ(result.saw_shrunk, GetParam().options.min_nodes > 0);
    EXPECT_EQ(result.saw_grown, GetParam().options.min_nodes > 0);
  }
  std::cout << "states " << result.states << ", transitions " << result.transitions << ", generations "
            << result.most_generations << ", "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << " s\n";
}

INSTANTIATE_TEST_SUITE_P(
    All, RegroupModel,
    ::testing::Values(
        RegroupSetup{.name = "OneNodeFromItsStart",
                     .options = {.nodes = 1, .ranks_per_node = 2, .steps = 1, .faults = 1, .from_start = true}},
        RegroupSetup{.name = "OneNodeTwoFaults", .options = {.nodes = 1, .ranks_per_node = 2, .steps = 1, .faults = 2}},
        RegroupSetup{.name = "OneNodeThreeRanks",
                     .options = {.nodes = 1, .ranks_per_node = 3, .steps = 1, .faults = 1}},
        RegroupSetup{.name = "BudgetIsSpent",
                     .options = {.nodes = 1, .ranks_per_node = 2, .steps = 1, .faults = 2, .max_restarts = 1}},
        RegroupSetup{.name = "BackOff",
                     .options = {.nodes = 1, .ranks_per_node = 2, .steps = 1, .faults = 2, .backoff = true}},
        RegroupSetup{.name = "TwoNodes", .options = {.nodes = 2, .steps = 2, .faults = 1}},
        RegroupSetup{.name = "FewerNodes", .options = {.nodes = 2, .min_nodes = 1, .steps = 2, .faults = 1}},
        RegroupSetup{
            .name = "ReturningLaunchers",
            .options = {.nodes = 2, .steps = 2, .faults = 3, .max_restarts = 4, .returns = true, .max_states = 300'000},
            .is_bounded = true},
        RegroupSetup{.name = "LaunchersThatReturnToANewCoordinator",
                     .options = {.nodes = 2,
                                 .steps = 1,
                                 .faults = 3,
                                 .max_restarts = 4,
                                 .returns = true,
                                 .cuts_in_steady_groups = true,
                                 .cut_off_coordinator_ends = true}},
        // The nearest states include those of PlantedBug::kSharedFence.
        RegroupSetup{.name = "CoordinatorsThatReturn",
                     .options = {.nodes = 2,
                                 .steps = 1,
                                 .faults = 3,
                                 .max_restarts = 4,
                                 .returns = true,
                                 .cuts_in_steady_groups = true,
                                 .max_states = 400'000},
                     .is_bounded = true},
        RegroupSetup{.name = "TwoOfThreeNodes",
                     .options = {.nodes = 3, .min_nodes = 2, .steps = 1, .faults = 1, .max_states = 300'000},
                     .is_bounded = true},
        RegroupSetup{.name = "FewerNodesTwoFaults",
                     .options = {.nodes = 2, .min_nodes = 1, .steps = 1, .faults = 2, .max_states = 300'000},
                     .is_bounded = true},
        RegroupSetup{.name = "TwoNodesTwoFaults",
                     .options = {.nodes = 2, .steps = 1, .faults = 2, .max_states = 300'000},
                     .is_bounded = true}),
    [](const auto& setup) { return std::string(setup.param.name); });

}  // namespace
}  // namespace oarlock::test
