// The coordinator: launchers that were replaced, that return, and that stop.
#include "recovery/coordinator.h"

#include <gmock/gmock.h>
#include "tests/unit/common/coordinator_fixture.h"

namespace oarlock::recovery {
namespace {

using ::testing::HasSubstr;

TEST_F(CoordinatorTest, ReplacementOfAllLaunchersEndsTheJob) {
  CoordinatorOptions again = options();
  again.is_replacement = true;
  Coordinator coordinator(again, 9);
  report(coordinator, 0, joined(8, -1, -1));
  report(coordinator, 1, joined(9, -1, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
}

TEST_F(CoordinatorTest, RejectsReportsOfReplacedLaunchers) {
  Coordinator coordinator = running_group(options());
  EXPECT_TRUE(coordinator.received(next_report(1, 500, joined(7, -1, -1)), now_));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  EXPECT_FALSE(report(coordinator, 1, running(2, 0)));
  EXPECT_EQ(coordinator.state().ranks[1].report.process, 7u);
}

// ---- Launchers that were replaced, and return ----------------------------------------------------------------------

struct LauncherReport {
  int node = 0;
  uint64_t launcher = 0;
  uint64_t first_coordinator = 0;  // 9 is the present one, 5 its predecessor
  int64_t member_of = -1;
  int64_t group = -1;
  std::vector<uint64_t> launchers{};
  int64_t fence = -1;
};

struct Return {
  const char* name;
  std::vector<LauncherReport> reports;
  std::vector<uint64_t> retired;
  int64_t generation;
};

std::ostream& operator<<(std::ostream& out, const Return& row) { return out << row.name; }

class ReturningLaunchers : public CoordinatorTest, public ::testing::WithParamInterface<Return> {};

// A coordinator that has replaced another one, of a job of three nodes with one rank each.
TEST_P(ReturningLaunchers, AreRecognizedByANewCoordinator) {
  CoordinatorOptions options = CoordinatorTest::options();
  options.nodes = 3;
  options.is_replacement = true;
  Coordinator coordinator(options, 9);
  for (const LauncherReport& from : GetParam().reports) {
    NodeReport report =
        next_report(from.node, from.launcher, joined(from.launcher * 10, from.member_of, from.member_of < 0 ? -1 : 7));
    report.generation = std::max(from.member_of, from.group);
    report.first_coordinator = from.first_coordinator;
    report.member_of = from.member_of;
    report.group = from.group;
    report.launchers = from.launchers;
    report.fence = from.fence;
    coordinator.received(report, now_);
  }
  EXPECT_EQ(coordinator.state().retired, GetParam().retired);
  EXPECT_EQ(coordinator.order().generation, GetParam().generation);
  for (const uint64_t launcher : GetParam().retired) {
    for (const Coordinator::RankSlot& slot : coordinator.state().ranks)
      EXPECT_NE(slot.report.process, launcher * 10) << "its state must not be used";
  }
}

// The launchers 101, 102 and 103 formed generation 0; 202 has replaced 102 in generation 1.
LauncherReport member_of_group(int64_t generation, std::vector<uint64_t> launchers, int node, uint64_t launcher) {
  return {.node = node,
          .launcher = launcher,
          .first_coordinator = 5,
          .member_of = generation,
          .group = generation,
          .launchers = std::move(launchers)};
}
LauncherReport member_of_first_group(int node, uint64_t launcher) {
  return member_of_group(0, {101, 102, 103}, node, launcher);
}
LauncherReport member_of_newest_group(int node, uint64_t launcher) {
  return member_of_group(1, {101, 202, 103}, node, launcher);
}

INSTANTIATE_TEST_SUITE_P(
    All, ReturningLaunchers,
    ::testing::Values(
        Return{.name = "AfterAMemberOfTheNewestGroup",
               .reports = {member_of_newest_group(2, 103), member_of_first_group(1, 102)},
               .retired = {102},
               .generation = 2},
        Return{.name = "BeforeAMemberOfTheNewestGroup",
               .reports = {member_of_first_group(1, 102), member_of_newest_group(2, 103)},
               .retired = {102},
               .generation = 2},
        Return{.name = "BeforeItsSuccessor",
               .reports = {member_of_first_group(1, 102), member_of_newest_group(1, 202)},
               .retired = {102},
               .generation = 2},
        Return{.name = "AfterTheFenceWasRead",
               .reports = {{.node = 0, .launcher = 201, .fence = 1},
                           member_of_first_group(1, 102),
                           member_of_newest_group(1, 202)},
               .retired = {102},
               .generation = 2},
        Return{.name = "BeforeTheFenceWasRead",
               .reports = {member_of_first_group(1, 102), {.node = 0, .launcher = 201, .fence = 1}},
               .retired = {102},
               .generation = 2},
        Return{
            .name = "MemberReplacesOneThatWasInNoGroup",
            .reports = {{.node = 1, .launcher = 202, .first_coordinator = 5, .group = 0, .launchers = {101, 102, 103}},
                        member_of_first_group(1, 102)},
            .retired = {202},
            .generation = 1},
        Return{
            .name = "OneThatWasInNoGroupDoesNotReplaceAMember",
            .reports = {member_of_first_group(1, 102),
                        {.node = 1, .launcher = 202, .first_coordinator = 5, .group = 0, .launchers = {101, 102, 103}}},
            .retired = {202},
            .generation = 1},
        Return{.name = "NewLauncherReplacesAMember",
               .reports = {member_of_first_group(1, 102), {.node = 1, .launcher = 302}},
               .retired = {102},
               .generation = 1},
        Return{.name = "LauncherOfAnEarlierVersionIsAdmitted",
               .reports = {{.node = 1, .launcher = 102, .first_coordinator = 5, .member_of = 3}},
               .retired = {},
               .generation = 4}),
    [](const auto& row) { return std::string(row.param.name); });

// It was cut off, and the launchers of the other nodes have formed a group with its successor.
TEST_F(CoordinatorTest, ReplacedCoordinatorEnds) {
  for (const bool has_fence : {false, true}) {
    Coordinator coordinator = running_group(options());
    NodeReport other = next_report(1, 102, running(2, 1));
    other.first_coordinator = 9;
    other.member_of = 1;
    (has_fence ? other.fence : other.group) = 1;
    other.launchers = {201, 102};
    EXPECT_TRUE(coordinator.received(other, now_));
    EXPECT_TRUE(coordinator.state().is_replaced);
    EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
    EXPECT_THAT(coordinator.order().reason, HasSubstr("has formed the group of generation 1, and this one that of"));
  }
}

// An earlier launch of the same attempt has used the generations up to that of the fence.
TEST_F(CoordinatorTest, FirstGroupFollowsTheFence) {
  CoordinatorOptions none = options();
  none.max_restarts = 0;
  Coordinator coordinator(none, 9);
  NodeReport first = next_report(0, 101, joined(1, -1, -1));
  first.fence = 4;
  coordinator.received(first, now_);
  report(coordinator, 0, joined(1, -1, -1));
  report(coordinator, 1, joined(2, -1, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().generation, 5);
  EXPECT_EQ(coordinator.order().uncharged, 5);
}

TEST_F(CoordinatorTest, CountsDonorLostDuringHandover) {
  CoordinatorOptions many = options();
  many.max_restarts = 10;
  Coordinator coordinator = running_group(many);
  // Rank 1 is the donor of step 5, and dies before rank 0 has received it.
  report(coordinator, 0, exited(1, 137));
  report(coordinator, 1, joined(2, 0, 5));
  report(coordinator, 0, joined(3, -1, -1));
  report(coordinator, 1, exited(2, 137));
  report(coordinator, 1, joined(4, -1, -1));
  report(coordinator, 0, joined(3, 1, -1));
  report(coordinator, 1, joined(4, -1, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().donor, -1);
  EXPECT_EQ(coordinator.state().lost_handovers, 1);
}

TEST_F(CoordinatorTest, LossOfStoppingLauncherEndsTheJob) {
  Coordinator coordinator = running_group(options());
  EXPECT_FALSE(coordinator.received(stopping(), now_)) << "its ranks may still save";
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_TRUE(coordinator.disconnected(1, 102, now_));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_FALSE(coordinator.order().success);
  EXPECT_THAT(coordinator.order().reason, HasSubstr("node rank 1 was requested to stop"));
}

TEST_F(CoordinatorTest, GroupDoesNotWaitForStoppingLauncher) {
  Coordinator coordinator = running_group(options());
  coordinator.received(stopping(), now_);
  EXPECT_TRUE(report(coordinator, 0, joined(1, 0, 5)));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
}

TEST_F(CoordinatorTest, GroupWaitsForReplacementOfStoppingLauncher) {
  CoordinatorOptions replaced = options();
  replaced.replaces_nodes = true;
  Coordinator coordinator = running_group(replaced);
  coordinator.received(stopping(), now_);
  EXPECT_FALSE(coordinator.disconnected(1, 102, now_));
  report(coordinator, 0, joined(1, 0, 5));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  EXPECT_FALSE(coordinator.stop()) << "the other launchers wait for the replacement of this one";
  report(coordinator, 1, joined(7, -1, -1), true, 500);
  report(coordinator, 0, joined(1, 0, 5));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().donor, 0);
}

TEST_F(CoordinatorTest, StopOfTheLocalLauncherEndsTheJob) {
  Coordinator coordinator = running_group(options());
  EXPECT_TRUE(coordinator.stop());
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_FALSE(coordinator.stop());
}

}  // namespace
}  // namespace oarlock::recovery
