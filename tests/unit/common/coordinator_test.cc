// The coordinator of the regroup protocol, event by event.
#include "recovery/coordinator.h"

#include <gmock/gmock.h>

namespace oarlock::recovery {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two nodes with one rank each; the reports of launchers 101 and 102.
class CoordinatorTest : public ::testing::Test {
 protected:
  static CoordinatorOptions options() {
    CoordinatorOptions options;
    options.nodes = 2;
    options.max_restarts = 3;
    options.backoff = milliseconds(0);
    return options;
  }

  static RankReport joined(ProcessId process, int64_t generation, int64_t step, std::string digest = "") {
    RankReport report;
    report.phase = RankPhase::kJoined;
    report.process = process;
    report.generation = generation;
    report.step = step;
    report.digest = std::move(digest);
    return report;
  }
  static RankReport running(ProcessId process, int64_t generation) {
    RankReport report;
    report.phase = RankPhase::kRunning;
    report.process = process;
    report.generation = generation;
    return report;
  }
  static RankReport exited(ProcessId process, int exit_code, int64_t generation = 0) {
    RankReport report;
    report.generation = generation;
    report.phase = exit_code == 0 ? RankPhase::kFinished : RankPhase::kExited;
    report.process = process;
    report.exit_code = exit_code;
    return report;
  }

  // The next report of a launcher that has received no order.
  NodeReport next_report(int node, uint64_t launcher, const RankReport& rank) {
    NodeReport report;
    report.node = node;
    report.launcher = launcher;
    report.sequence = ++sequence_;
    report.ranks = {rank};
    return report;
  }

  // A report that acknowledges the current order, by default of the first launcher of the node.
  bool report(Coordinator& coordinator, int node, const RankReport& rank, bool acknowledges = true,
              uint64_t launcher = 0) {
    NodeReport report = next_report(node, launcher == 0 ? static_cast<uint64_t>(101 + node) : launcher, rank);
    report.generation = report.member_of = rank.generation;
    report.coordinator = 9;
    report.order_sequence = acknowledges ? coordinator.order().sequence : 0;
    return coordinator.received(report, now_);
  }

  // A group of generation 0 with the processes 1 and 2.
  Coordinator running_group(const CoordinatorOptions& options) {
    Coordinator coordinator(options, 9);
    report(coordinator, 0, joined(1, -1, -1));
    report(coordinator, 1, joined(2, -1, -1));
    report(coordinator, 0, running(1, 0));
    report(coordinator, 1, running(2, 0));
    EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
    return coordinator;
  }

  // Node rank 1 was requested to stop, and its rank still runs.
  NodeReport stopping() {
    NodeReport report = next_report(1, 102, running(2, 0));
    report.is_stopping = true;
    return report;
  }

  SteadyTime now_{};
  uint64_t sequence_ = 0;
};

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
