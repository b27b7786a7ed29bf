// Verifies that the search of regroup_model_test detects protocols with one bug.
#include <gmock/gmock.h>

#include "tests/support/model/regroup_model.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;

struct Planted {
  const char* name;
  RegroupModelOptions options;
  const char* violation;
};

std::ostream& operator<<(std::ostream& out, const Planted& planted) { return out << planted.name; }

class RegroupModelItself : public ::testing::TestWithParam<Planted> {};

TEST_P(RegroupModelItself, DetectsPlantedBug) {
  EXPECT_THAT(check_regroup(GetParam().options).violation, HasSubstr(GetParam().violation));
}

constexpr RegroupModelOptions with_bug_in_resize(PlantedBug bug, int nodes, int min_nodes, int steps) {
  return {.nodes = nodes, .min_nodes = min_nodes, .steps = steps, .faults = 1, .max_restarts = 1, .bug = bug};
}

constexpr RegroupModelOptions with_bug(PlantedBug bug, int nodes, int ranks_per_node, int faults) {
  return {.nodes = nodes,
          .ranks_per_node = ranks_per_node,
          .steps = 1,
          .faults = faults,
          .max_restarts = faults,
          .bug = bug};
}

INSTANTIATE_TEST_SUITE_P(All, RegroupModelItself,
                         ::testing::Values(Planted{.name = "GroupWithoutRankThatStillTrains",
                                                   .options = with_bug(PlantedBug::kIncompleteGroup, 2, 1, 1),
                                                   .violation = "rank 1 has completed step 0"},
                                           Planted{.name = "OldestDonor",
                                                   .options = with_bug(PlantedBug::kOldestDonor, 1, 3, 1),
                                                   .violation = "loses step 1"},
                                           Planted{.name = "PartlyOverwrittenState",
                                                   .options = with_bug(PlantedBug::kTornStateReported, 1, 2, 2),
                                                   .violation = "a rank trains with a partly overwritten state"},
                                           Planted{.name = "StaleReport",
                                                   .options = with_bug(PlantedBug::kStaleReport, 2, 1, 1),
                                                   .violation = "the job ends after 1 faults"},
                                           Planted{.name = "MissingAcknowledgement",
                                                   .options = with_bug(PlantedBug::kNoAcknowledgement, 2, 1, 2),
                                                   .violation = "the job ends after 2 faults"},
                                           Planted{.name = "AssignmentToReplacedMember",
                                                   .options = with_bug(PlantedBug::kReplacedMember, 2, 1, 2),
                                                   .violation = "holds step -1 instead of 0"},
                                           Planted{.name = "HungRankIsNotKilled",
                                                   .options = with_bug(PlantedBug::kNoKill, 2, 1, 1),
                                                   .violation = "did not join in time"},
                                           Planted{.name = "RankStaysInGroupItLeft",
                                                   .options = with_bug(PlantedBug::kStaysInGroup, 2, 1, 1),
                                                   .violation = "has completed step 1"},
                                           Planted{.name = "LauncherThatWasLeftOutReturns",
                                                   .options = with_bug_in_resize(PlantedBug::kLeftOutReturns, 2, 1, 2),
                                                   .violation = "with different bits"},
                                           Planted{.name = "GroupBelowSmallestSize",
                                                   .options = with_bug_in_resize(PlantedBug::kTooFewNodes, 2, 2, 1),
                                                   .violation = "has 1 ranks only"},
                                           Planted{.name = "SmallerGroupKeepsRankNumbers",
                                                   .options = with_bug_in_resize(PlantedBug::kSparseRanks, 3, 2, 1),
                                                   .violation = "as rank 2 of 2"},
                                           Planted{.name = "NewCoordinatorReusesGeneration",
                                                   .options = with_bug(PlantedBug::kForgottenGroup, 2, 1, 2),
                                                   .violation = "hold the checkpoint fence"},
                                           Planted{.name = "NewCoordinatorAdmitsReplacedLauncher",
                                                   .options = {.nodes = 2,
                                                               .steps = 1,
                                                               .faults = 3,
                                                               .max_restarts = 4,
                                                               .returns = true,
                                                               .cuts_in_steady_groups = true,
                                                               .cut_off_coordinator_ends = true,
                                                               .bug = PlantedBug::kForgottenMembers},
                                                   .violation = "of a launcher that was replaced"},
                                           Planted{.name = "TwoGroupsClaimOneGeneration",
                                                   .options = {.nodes = 2,
                                                               .steps = 1,
                                                               .faults = 3,
                                                               .max_restarts = 4,
                                                               .returns = true,
                                                               .cuts_in_steady_groups = true,
                                                               .bug = PlantedBug::kSharedFence},
                                                   .violation = "hold the checkpoint fence"}),
                         [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace oarlock::test
