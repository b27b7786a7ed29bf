// The coordinator: groups that shrink and grow.
#include "recovery/coordinator.h"

#include <gmock/gmock.h>
#include "tests/unit/common/coordinator_fixture.h"

namespace oarlock::recovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- Another number of nodes --------------------------------------------------------------------------------------

// Three nodes with one rank each, of which one may be missing.
class ElasticCoordinatorTest : public CoordinatorTest {
 protected:
  static CoordinatorOptions elastic() {
    CoordinatorOptions out = options();
    out.nodes = 3;
    out.min_nodes = 2;
    out.form_timeout = seconds(300);
    out.shrink_after = seconds(60);
    return out;
  }
  Coordinator running_group(const CoordinatorOptions& options = elastic()) {
    Coordinator coordinator(options, 9);
    for (int node = 0; node < 3; ++node) report(coordinator, node, joined(ProcessId(node + 1), -1, -1));
    for (int node = 0; node < 3; ++node) report(coordinator, node, running(ProcessId(node + 1), 0));
    EXPECT_THAT(coordinator.order().nodes, ElementsAre(0, 1, 2));
    return coordinator;
  }
  // Node rank 1 is lost, and the others wait with the state of step 5.
  Coordinator waiting_group(const CoordinatorOptions& options = elastic()) {
    Coordinator coordinator = running_group(options);
    coordinator.disconnected(1, 102, now_);
    for (const int node : {0, 2, 0, 2}) report(coordinator, node, joined(ProcessId(node + 1), 0, 5));
    EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
    return coordinator;
  }
  // The group of generation 1 without node rank 1.
  Coordinator smaller_group(const CoordinatorOptions& options = elastic()) {
    Coordinator coordinator = waiting_group(options);
    now_ += seconds(60);
    EXPECT_TRUE(coordinator.time_passed(now_));
    for (const int node : {0, 2}) report(coordinator, node, running(ProcessId(node + 1), 1));
    EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
    return coordinator;
  }
  // A report of the launcher that replaces that of node rank 1.
  bool report_of_newcomer(Coordinator& coordinator, const RankReport& rank) {
    return report(coordinator, 1, rank, true, 202);
  }
};

TEST_F(ElasticCoordinatorTest, ContinuesWithoutMissingNode) {
  Coordinator coordinator = waiting_group();
  EXPECT_EQ(coordinator.leave_out_at(), now_ + seconds(60));
  now_ += seconds(59);
  coordinator.time_passed(now_);
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  now_ += seconds(1);
  EXPECT_TRUE(coordinator.time_passed(now_));
  const Order order = coordinator.order();
  EXPECT_EQ(order.kind, OrderKind::kRun);
  EXPECT_EQ(order.generation, 1);
  EXPECT_THAT(order.nodes, ElementsAre(0, 2));
  EXPECT_THAT(order.members, ElementsAre(1, 3));
  EXPECT_EQ(order.donor, 0);
  EXPECT_EQ(order.step, 5);
}

TEST_F(ElasticCoordinatorTest, DonorIsNumberedInTheSmallerGroup) {
  Coordinator coordinator = running_group();
  coordinator.disconnected(1, 102, now_);
  report(coordinator, 0, joined(1, 0, 4));
  report(coordinator, 2, joined(3, 0, 5));
  report(coordinator, 0, joined(1, 0, 4));
  coordinator.time_passed(now_ + seconds(60));
  EXPECT_EQ(coordinator.order().donor, 1);
  EXPECT_EQ(coordinator.order().step, 5);
}

TEST_F(ElasticCoordinatorTest, WaitsFromTheLossOfTheConnection) {
  Coordinator coordinator = running_group();
  report(coordinator, 0, joined(1, 0, 5));
  now_ += seconds(40);
  coordinator.disconnected(1, 102, now_);
  EXPECT_EQ(coordinator.leave_out_at(), now_ + seconds(60));
}

// Without power or a network, a node does not close its connection.
TEST_F(ElasticCoordinatorTest, SilentNodeIsMissingSinceItsLastReport) {
  Coordinator coordinator = running_group();
  const SteadyTime last = now_;
  report(coordinator, 0, joined(1, 0, 5));
  now_ += seconds(20);
  coordinator.disconnected(1, 102, now_, last);
  EXPECT_EQ(coordinator.leave_out_at(), last + seconds(60));
  now_ += seconds(20);
  coordinator.disconnected(1, 102, now_);  // its connection has ended, too
  EXPECT_EQ(coordinator.leave_out_at(), last + seconds(60));
}

TEST_F(ElasticCoordinatorTest, SilentNodeThatReportsAgainIsExpected) {
  Coordinator coordinator = waiting_group();
  report(coordinator, 1, joined(2, 0, 5));
  EXPECT_FALSE(coordinator.leave_out_at());
  report(coordinator, 1, joined(2, 0, 5));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_THAT(coordinator.order().nodes, ElementsAre(0, 1, 2));
}

TEST_F(ElasticCoordinatorTest, WaitsForNodeThatIsConnected) {
  Coordinator coordinator = waiting_group();
  report_of_newcomer(coordinator, {});
  EXPECT_FALSE(coordinator.leave_out_at());
}

TEST_F(ElasticCoordinatorTest, KeepsTheSmallestSize) {
  Coordinator coordinator = waiting_group();
  coordinator.disconnected(2, 103, now_);
  EXPECT_FALSE(coordinator.leave_out_at());
  now_ += seconds(300);
  coordinator.time_passed(now_);
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_THAT(coordinator.order().reason, HasSubstr("ranks 1, 2 did not join in time"));
}

TEST_F(ElasticCoordinatorTest, FirstGroupWaitsForAllNodes) {
  Coordinator coordinator(elastic(), 9);
  report(coordinator, 0, joined(1, -1, -1));
  report(coordinator, 2, joined(3, -1, -1));
  EXPECT_FALSE(coordinator.leave_out_at());
}

// Its ranks may hold a step that the smaller group has repeated.
TEST_F(ElasticCoordinatorTest, IgnoresLauncherThatWasLeftOut) {
  Coordinator coordinator = smaller_group();
  EXPECT_TRUE(coordinator.is_retired(102));
  EXPECT_FALSE(report(coordinator, 1, joined(2, 0, 6)));
  EXPECT_EQ(coordinator.order().generation, 1);
}

TEST_F(ElasticCoordinatorTest, TakesInNewcomerThatWaits) {
  Coordinator coordinator = smaller_group();
  EXPECT_FALSE(report_of_newcomer(coordinator, {}));
  EXPECT_TRUE(report_of_newcomer(coordinator, joined(12, -1, -1)));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  EXPECT_EQ(coordinator.order().generation, 2);
  EXPECT_EQ(coordinator.order().uncharged, 1);
  EXPECT_EQ(coordinator.order().reason, "node rank 1 joins the group");
  report_of_newcomer(coordinator, joined(12, -1, -1));
  for (const int node : {0, 2}) report(coordinator, node, joined(ProcessId(node + 1), 1, 8));
  const Order order = coordinator.order();
  EXPECT_EQ(order.kind, OrderKind::kRun);
  EXPECT_THAT(order.nodes, ElementsAre(0, 1, 2));
  EXPECT_THAT(order.members, ElementsAre(1, 12, 3));
  EXPECT_EQ(order.step, 8);
}

TEST_F(ElasticCoordinatorTest, RanksLeaveBetweenTwoStepsToGrow) {
  Coordinator coordinator = smaller_group();
  report_of_newcomer(coordinator, joined(12, -1, -1));
  EXPECT_TRUE(coordinator.order().is_growth);
  now_ += elastic().leave_timeout;
  EXPECT_TRUE(coordinator.time_passed(now_)) << "a step takes too long";
  EXPECT_FALSE(coordinator.order().is_growth);
  EXPECT_THAT(coordinator.order().kill, IsEmpty());
  now_ += elastic().leave_timeout;
  EXPECT_TRUE(coordinator.time_passed(now_));
  EXPECT_THAT(coordinator.order().kill, ElementsAre(1, 3));
}

TEST_F(ElasticCoordinatorTest, GroupMayFinishInsteadOfGrowing) {
  Coordinator coordinator = smaller_group();
  report_of_newcomer(coordinator, joined(12, -1, -1));
  EXPECT_FALSE(report(coordinator, 0, exited(1, 0)));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  EXPECT_TRUE(report(coordinator, 2, exited(3, 0)));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_TRUE(coordinator.order().success);
}

TEST_F(ElasticCoordinatorTest, DoesNotWaitForNewcomerThatIsLost) {
  Coordinator coordinator = smaller_group();
  report_of_newcomer(coordinator, joined(12, -1, -1));
  for (const int node : {0, 2}) report(coordinator, node, joined(ProcessId(node + 1), 1, 8));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm) << "the newcomer has not acknowledged it";
  EXPECT_TRUE(coordinator.disconnected(1, 202, now_));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_THAT(coordinator.order().nodes, ElementsAre(0, 2));
}

TEST_F(ElasticCoordinatorTest, GrowthIsNotCountedAsRestart) {
  CoordinatorOptions options = elastic();
  options.max_restarts = 1;
  Coordinator coordinator = smaller_group(options);
  report_of_newcomer(coordinator, joined(12, -1, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm) << coordinator.order().reason;
}

TEST_F(ElasticCoordinatorTest, DoesNotGrowWhileRanksFinish) {
  Coordinator coordinator = smaller_group();
  report(coordinator, 0, exited(1, 0));
  EXPECT_FALSE(report_of_newcomer(coordinator, joined(12, -1, -1)));
  EXPECT_TRUE(report(coordinator, 2, exited(3, 0)));
  EXPECT_TRUE(coordinator.order().success);
}

// A further loss waits for the lost node again, and not for the one that was left out before.
TEST_F(ElasticCoordinatorTest, SmallerGroupRecoversLostRank) {
  Coordinator coordinator = smaller_group();
  report(coordinator, 2, exited(3, 137));
  report(coordinator, 0, joined(1, 1, 9));
  report(coordinator, 2, joined(13, -1, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().generation, 2);
  EXPECT_THAT(coordinator.order().members, ElementsAre(1, 13));
}

}  // namespace
}  // namespace oarlock::recovery
