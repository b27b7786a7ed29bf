// The coordinator of the regroup protocol, event by event.
#include "recovery/coordinator.h"

#include <gmock/gmock.h>
#include "tests/unit/common/coordinator_fixture.h"

namespace oarlock::recovery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(CoordinatorTest, FirstGroupStartsFromCheckpoint) {
  Coordinator coordinator(options(), 9);
  EXPECT_FALSE(report(coordinator, 0, joined(1, -1, -1)));
  EXPECT_TRUE(report(coordinator, 1, joined(2, -1, -1)));
  const Order order = coordinator.order();
  EXPECT_EQ(order.kind, OrderKind::kRun);
  EXPECT_EQ(order.generation, 0);
  EXPECT_EQ(order.donor, -1);
  EXPECT_THAT(order.members, ElementsAre(1, 2));
}

TEST_F(CoordinatorTest, SurvivorBecomesDonor) {
  Coordinator coordinator = running_group(options());
  EXPECT_TRUE(report(coordinator, 0, exited(1, 137)));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  EXPECT_EQ(coordinator.order().generation, 1);
  EXPECT_EQ(coordinator.order().reason, "rank 0 ended with exit code 137");
  report(coordinator, 1, joined(2, 0, 41));
  EXPECT_TRUE(report(coordinator, 0, joined(3, -1, -1)));
  const Order order = coordinator.order();
  EXPECT_EQ(order.kind, OrderKind::kRun);
  EXPECT_EQ(order.donor, 1);
  EXPECT_EQ(order.step, 41);
  EXPECT_THAT(order.members, ElementsAre(3, 2));
}

TEST_F(CoordinatorTest, NewestStepIsKept) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, joined(1, 0, 7));
  report(coordinator, 1, joined(2, 0, 8));
  report(coordinator, 0, joined(1, 0, 7));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().donor, 1);
  EXPECT_EQ(coordinator.order().step, 8);
}

TEST_F(CoordinatorTest, WaitsForAcknowledgement) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 1, joined(2, 0, 5));
  report(coordinator, 0, joined(1, 0, 5), false);
  report(coordinator, 1, joined(2, 0, 5));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
  report(coordinator, 0, joined(1, 0, 5));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
}

TEST_F(CoordinatorTest, DifferentStatesEndTheJob) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, joined(1, 0, 7, "aa"));
  report(coordinator, 1, joined(2, 0, 7, "bb"));
  report(coordinator, 0, joined(1, 0, 7, "aa"));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_THAT(coordinator.order().reason, HasSubstr("different states after step 7"));
}

TEST_F(CoordinatorTest, PermanentExitCodeEndsTheJob) {
  for (const int code : {65, 72, 75, 78, 79, 130, 143}) {
    Coordinator coordinator = running_group(options());
    report(coordinator, 1, exited(2, code));
    EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd) << code;
    EXPECT_FALSE(coordinator.order().success);
  }
  for (const int code : {1, 2, 76, 134, 137, 139, 255}) EXPECT_TRUE(is_recoverable_in_place(code)) << code;
}

// A rank exits with 76 if another one is lost before it can keep its state.
// Up to the limit of start failures.
TEST_F(CoordinatorTest, TemporaryFailureBeforeJoiningIsNotPermanent) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, exited(1, 137));
  ProcessId process = 3;
  for (int i = 0; i < kMaxStartFailures; ++i) {
    report(coordinator, 0, exited(process, 75, -1));
    EXPECT_EQ(coordinator.order().kind, OrderKind::kForm);
    ++process;
  }
  report(coordinator, 0, exited(process, 75, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_THAT(coordinator.order().reason, HasSubstr("rank 0 failed 4 times before it joined"));
}

TEST_F(CoordinatorTest, LossOfAnotherRankIsNotTheCause) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, exited(1, 76));
  ASSERT_EQ(coordinator.order().kind, OrderKind::kForm);
  EXPECT_EQ(coordinator.order().reason, "rank 0 left the group: it ended, because another rank was lost");
  report(coordinator, 1, exited(2, 137));
  EXPECT_EQ(coordinator.order().reason, "rank 1 ended with exit code 137");
  report(coordinator, 0, joined(3, -1, -1));
  report(coordinator, 1, joined(4, -1, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().donor, -1);
}

TEST_F(CoordinatorTest, ConnectionOfUnknownNodeIsIgnored) {
  Coordinator coordinator = running_group(options());
  coordinator.disconnected(2, 103, now_);
  coordinator.disconnected(-1, 103, now_);
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
}

TEST_F(CoordinatorTest, BudgetEndsTheJob) {
  CoordinatorOptions one = options();
  one.max_restarts = 1;
  Coordinator coordinator = running_group(one);
  report(coordinator, 0, exited(1, 137));
  report(coordinator, 1, joined(2, 0, 3));
  report(coordinator, 0, joined(3, -1, -1));
  ASSERT_EQ(coordinator.order().kind, OrderKind::kRun);
  report(coordinator, 1, exited(2, 137));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_EQ(coordinator.order().reason, "rank 1 ended with exit code 137; the only restart is used up");
}

TEST_F(CoordinatorTest, FailureAfterRankFinishedEndsTheJob) {
  Coordinator coordinator = running_group(options());
  EXPECT_FALSE(report(coordinator, 0, exited(1, 0)));
  report(coordinator, 1, exited(2, 137));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_THAT(coordinator.order().reason, HasSubstr("rank 0 had already finished"));
}

TEST_F(CoordinatorTest, ProgramThatDoesNotRegroupEndsTheJob) {
  Coordinator coordinator(options(), 9);
  report(coordinator, 0, exited(1, 0, -1));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_THAT(coordinator.order().reason,
              HasSubstr("rank 0 ended with exit code 0 before it joined the group: its program does not regroup; use "
                        "--restart-policy group"));
  EXPECT_FALSE(coordinator.order().success);
}

TEST_F(CoordinatorTest, TimeoutOfTheFirstGroupNamesTheRemedy) {
  Coordinator coordinator(options(), 9);
  RankReport starting;
  starting.process = 1;
  report(coordinator, 0, starting);
  now_ += options().form_timeout;
  EXPECT_TRUE(coordinator.time_passed(now_));
  EXPECT_THAT(coordinator.order().reason, HasSubstr("if their program does not regroup, use --restart-policy group"));
}

TEST_F(CoordinatorTest, AllRanksFinish) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, exited(1, 0));
  report(coordinator, 1, exited(2, 0));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_TRUE(coordinator.order().success);
}

TEST_F(CoordinatorTest, RankThatDoesNotLeaveIsKilled) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, joined(1, 0, 5));
  ASSERT_EQ(coordinator.deadline(), now_ + options().leave_timeout);
  EXPECT_FALSE(coordinator.time_passed(now_ + options().leave_timeout - milliseconds(1)));
  EXPECT_TRUE(coordinator.time_passed(now_ + options().leave_timeout));
  EXPECT_THAT(coordinator.order().kill, ElementsAre(2));
}

TEST_F(CoordinatorTest, IncompleteGroupEndsTheJobInTime) {
  Coordinator coordinator = running_group(options());
  report(coordinator, 0, joined(1, 0, 5));
  EXPECT_TRUE(coordinator.time_passed(now_ + options().form_timeout));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kEnd);
  EXPECT_EQ(coordinator.order().reason, "ranks 1 did not join in time");
}

TEST_F(CoordinatorTest, QuickRestartsWait) {
  CoordinatorOptions slow = options();
  slow.backoff = seconds(10);
  Coordinator coordinator = running_group(slow);
  report(coordinator, 0, exited(1, 137));
  EXPECT_TRUE(coordinator.order().respawn);
  report(coordinator, 1, joined(2, 0, 3));
  report(coordinator, 0, joined(3, -1, -1));
  report(coordinator, 0, exited(3, 137));
  EXPECT_FALSE(coordinator.order().respawn);
  EXPECT_FALSE(coordinator.time_passed(now_ + seconds(9)));
  EXPECT_TRUE(coordinator.time_passed(now_ + seconds(10)));
  EXPECT_TRUE(coordinator.order().respawn);
}

TEST_F(CoordinatorTest, ReplacementContinuesTheGenerations) {
  CoordinatorOptions again = options();
  again.is_replacement = true;
  Coordinator coordinator(again, 9);
  report(coordinator, 1, running(2, 2));
  EXPECT_EQ(coordinator.order().generation, 3);
  EXPECT_EQ(coordinator.order().reason, "the launcher of node rank 0 was replaced");
  report(coordinator, 0, joined(8, -1, -1));
  report(coordinator, 1, joined(2, 2, 30));
  EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
  EXPECT_EQ(coordinator.order().step, 30);
}

}  // namespace
}  // namespace oarlock::recovery
