// The decisions of the launcher as a table of events and results.
#include "cli/launch/supervisor.h"

#include <gmock/gmock.h>

#include <csignal>
#include <variant>

namespace oarlock::launch {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kGrace = seconds(20);
constexpr ExitStatus kOk{};
constexpr ExitStatus code(int value) { return {.code = value, .signal = 0}; }
constexpr ExitStatus died(int signal) { return {.code = 0, .signal = signal}; }
SteadyTime at(int second) { return SteadyTime(seconds(second)); }

Supervisor::Signals exit_one(Supervisor& supervisor, int member, ExitStatus status, int second,
                             bool leftovers = false) {
  const MemberExit exit{member, status, leftovers};
  return supervisor.exited({&exit, 1}, at(second));
}

// ---- Results -----------------------------------------------------------------------------------------------------

// Events, one second apart.
struct Ends {  // in one batch of waitpid(2)
  std::vector<MemberExit> exits;
};
struct Signal {
  int number;
};
struct GracePasses {};
using Event = std::variant<Ends, Signal, GracePasses>;

Ends ends(int member, ExitStatus status) { return {{{member, status, false}}}; }

struct Case {
  std::string name;
  int members = 2;
  std::vector<Event> events;
  int exit_code;
  int member;
};

class ResultTest : public testing::TestWithParam<Case> {};

TEST_P(ResultTest, ReportsFirstOwnFailure) {
  Supervisor supervisor(GetParam().members, kGrace);
  int now = 0;
  for (const Event& event : GetParam().events) {
    ++now;
    if (const auto* e = std::get_if<Ends>(&event)) supervisor.exited(e->exits, at(now));
    if (const auto* e = std::get_if<Signal>(&event)) supervisor.signalled(e->number, at(now));
    if (std::holds_alternative<GracePasses>(event)) supervisor.time_passed(at(now += 20));
  }
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.deadline(), std::nullopt);
  EXPECT_EQ(supervisor.result().exit_code, GetParam().exit_code);
  EXPECT_EQ(supervisor.result().member, GetParam().member);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ResultTest,
    testing::Values(
        Case{.name = "AllSucceed", .events = {ends(0, kOk), ends(1, kOk)}, .exit_code = 0, .member = -1},
        Case{.name = "OneFails", .events = {ends(0, kOk), ends(1, code(3))}, .exit_code = 3, .member = 1},
        Case{.name = "FailureThenPeersLost",
             .members = 3,
             .events = {ends(1, code(65)), ends(0, code(76)), ends(2, code(76))},
             .exit_code = 65,
             .member = 1},
        Case{.name = "PeersLostThenFailure",
             .members = 3,
             .events = {ends(0, code(76)), ends(2, code(76)), ends(1, code(65))},
             .exit_code = 65,
             .member = 1},
        Case{.name = "CrashSeenTogetherWithErrorExit",
             .events = {Ends{{{0, code(1), false}, {1, died(SIGSEGV), false}}}},
             .exit_code = 139,
             .member = 1},
        Case{.name = "CrashSeenTogetherWithPeerLost",
             .events = {Ends{{{0, code(76), false}, {1, died(SIGKILL), false}}}},
             .exit_code = 137,
             .member = 1},
        Case{.name = "OnlyPeersLost", .events = {ends(0, code(76)), ends(1, code(76))}, .exit_code = 76, .member = 0},
        Case{.name = "PeerLostThenStopped",
             .events = {ends(0, code(76)), GracePasses{}, ends(1, died(SIGTERM))},
             .exit_code = 76,
             .member = 0},
        Case{.name = "PeerLostThenSaved",
             .events = {ends(0, code(76)), GracePasses{}, ends(1, code(75))},
             .exit_code = 76,
             .member = 0},
        Case{.name = "PeerLostThenOutOfGrace",
             .events = {ends(0, code(76)), GracePasses{}, GracePasses{}, ends(1, died(SIGKILL))},
             .exit_code = 76,
             .member = 0},
        Case{.name = "FailureThenStubborn",
             .events = {ends(0, code(78)), GracePasses{}, ends(1, died(SIGKILL))},
             .exit_code = 78,
             .member = 0},
        Case{.name = "FailureThenOtherFailure",
             .events = {ends(1, code(4)), ends(0, code(5))},
             .exit_code = 4,
             .member = 1},
        Case{.name = "FailureThenCrash",
             .events = {ends(1, code(4)), ends(0, died(SIGABRT))},
             .exit_code = 4,
             .member = 1},
        Case{.name = "SuccessThenFailure",
             .events = {ends(0, kOk), ends(1, died(SIGKILL))},
             .exit_code = 137,
             .member = 1},
        Case{.name = "KilledFromOutside",
             .members = 1,
             .events = {ends(0, died(SIGKILL))},
             .exit_code = 137,
             .member = 0},
        Case{.name = "StoppedFromOutsideThenSaved",
             .events = {ends(0, died(SIGTERM)), ends(1, code(75))},
             .exit_code = 143,
             .member = 0},
        Case{.name = "TemporaryFailureUnasked",
             .events = {ends(0, code(75)), ends(1, died(SIGTERM))},
             .exit_code = 75,
             .member = 0},
        Case{.name = "InterruptedAndSaved",
             .events = {Signal{SIGTERM}, ends(1, died(SIGTERM)), ends(0, code(75))},
             .exit_code = 75,
             .member = 0},
        Case{.name = "InterruptedAndDone",
             .events = {Signal{SIGTERM}, ends(1, kOk), ends(0, kOk)},
             .exit_code = 0,
             .member = -1},
        Case{.name = "InterruptedAllDie",
             .events = {Signal{SIGINT}, ends(1, died(SIGINT)), ends(0, code(130))},
             .exit_code = 130,
             .member = 1},
        Case{.name = "InterruptedPeerLost",
             .events = {Signal{SIGTERM}, ends(1, code(76)), ends(0, code(143))},
             .exit_code = 76,
             .member = 1},
        Case{.name = "InterruptedPeerLostSaved",
             .events = {Signal{SIGTERM}, ends(1, code(76)), ends(0, code(75))},
             .exit_code = 75,
             .member = 0},
        Case{.name = "InterruptedOutOfGrace",
             .events = {Signal{SIGTERM}, ends(1, code(75)), GracePasses{}, ends(0, died(SIGKILL))},
             .exit_code = 137,
             .member = 0},
        Case{.name = "InterruptedAndFailed",
             .events = {Signal{SIGTERM}, ends(1, code(75)), ends(0, code(74))},
             .exit_code = 74,
             .member = 0},
        Case{.name = "InterruptedAndCrashed",
             .events = {Signal{SIGTERM}, ends(1, code(75)), ends(0, died(SIGSEGV))},
             .exit_code = 139,
             .member = 0},
        Case{.name = "FailedThenInterrupted",
             .events = {ends(0, code(66)), Signal{SIGTERM}, ends(1, code(75))},
             .exit_code = 66,
             .member = 0},
        Case{.name = "HangsInTheKernel",
             .events = {Signal{SIGTERM}, ends(1, code(75)), GracePasses{}, GracePasses{}},
             .exit_code = 137,
             .member = 0}),
    [](const auto& row) { return row.param.name; });

// The members that remain may save the state alone, unlike those of other groups (InterruptedAndCrashed).
TEST(Supervisor, LostMemberDoesNotHideASavedState) {
  struct Row {
    ExitStatus lost;
    ExitStatus other;
    int exit_code;
  };
  for (const Row& row : {Row{.lost = died(SIGKILL), .other = code(75), .exit_code = 75},
                         Row{.lost = died(SIGSEGV), .other = code(75), .exit_code = 75},
                         Row{.lost = died(SIGKILL), .other = code(76), .exit_code = 137},
                         Row{.lost = died(SIGKILL), .other = died(SIGTERM), .exit_code = 137},
                         Row{.lost = code(65), .other = code(75), .exit_code = 65}}) {
    Supervisor supervisor(2, kGrace, /*recovers_losses=*/true);
    supervisor.signalled(SIGTERM, at(1));
    exit_one(supervisor, 1, row.lost, 2);
    exit_one(supervisor, 0, row.other, 3);
    EXPECT_EQ(supervisor.result().exit_code, row.exit_code);
  }
}

TEST(Supervisor, LossBeforeTheSignalIsDecisive) {
  Supervisor supervisor(2, kGrace, /*recovers_losses=*/true);
  exit_one(supervisor, 1, died(SIGKILL), 1);
  supervisor.signalled(SIGTERM, at(2));
  exit_one(supervisor, 0, code(75), 3);
  EXPECT_EQ(supervisor.result().exit_code, 137);
}

// ---- Signals and time --------------------------------------------------------------------------------------------

TEST(Supervisor, FailureStopsOtherMembersOnce) {
  Supervisor supervisor(3, kGrace);
  EXPECT_THAT(exit_one(supervisor, 1, code(1), 5), ElementsAre(GroupSignal{0, SIGTERM}, GroupSignal{2, SIGTERM}));
  EXPECT_TRUE(supervisor.stopping());
  EXPECT_EQ(supervisor.running(), 2);
  EXPECT_EQ(supervisor.deadline(), at(25));
  EXPECT_THAT(exit_one(supervisor, 0, code(1), 6), IsEmpty());
  EXPECT_THAT(supervisor.time_passed(at(24)), IsEmpty());
  EXPECT_THAT(supervisor.time_passed(at(25)), ElementsAre(GroupSignal{2, SIGKILL}));
  EXPECT_THAT(supervisor.time_passed(at(26)), IsEmpty());
  EXPECT_FALSE(supervisor.finished());
  exit_one(supervisor, 2, died(SIGKILL), 26);
  EXPECT_TRUE(supervisor.finished());
}

TEST(Supervisor, CollateralFailureDelaysTheStop) {
  Supervisor supervisor(3, kGrace);
  EXPECT_THAT(exit_one(supervisor, 0, code(76), 5), IsEmpty());
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), at(7));
  EXPECT_THAT(exit_one(supervisor, 1, code(65), 6), ElementsAre(GroupSignal{2, SIGTERM}));
  exit_one(supervisor, 2, died(SIGTERM), 6);
  EXPECT_EQ(supervisor.result().exit_code, 65);
}

TEST(Supervisor, CollateralFailureStopsGroupAfterDelay) {
  Supervisor supervisor(2, kGrace);
  exit_one(supervisor, 0, code(76), 5);
  EXPECT_THAT(supervisor.time_passed(at(7)), ElementsAre(GroupSignal{1, SIGTERM}));
  EXPECT_TRUE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), at(27));
  exit_one(supervisor, 1, died(SIGTERM), 8);
  EXPECT_EQ(supervisor.result().exit_code, 76);
}

TEST(Supervisor, SuccessStopsNoMember) {
  Supervisor supervisor(2, kGrace);
  EXPECT_THAT(exit_one(supervisor, 0, kOk, 1), IsEmpty());
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), std::nullopt);
}

TEST(Supervisor, ForwardsStopSignalsUnchanged) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Supervisor supervisor(2, kGrace);
    EXPECT_THAT(supervisor.signalled(signal, at(1)), ElementsAre(GroupSignal{0, signal}, GroupSignal{1, signal}));
    EXPECT_EQ(supervisor.deadline(), at(21));
    EXPECT_EQ(supervisor.result().interrupted_by, signal);
  }
}

TEST(Supervisor, ForwardsOtherSignalsWithoutStopping) {
  Supervisor supervisor(2, kGrace);
  exit_one(supervisor, 0, kOk, 1);
  EXPECT_THAT(supervisor.signalled(SIGUSR1, at(2)), ElementsAre(GroupSignal{1, SIGUSR1}));
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), std::nullopt);
  EXPECT_EQ(supervisor.result().interrupted_by, 0);
}

// Exit code 0 on SIGTERM is not a success by itself, unlike one before it.
TEST(Supervisor, NamesMembersThatEndWithZeroAfterTheSignal) {
  Supervisor supervisor(3, kGrace);
  exit_one(supervisor, 0, kOk, 1);
  supervisor.signalled(SIGTERM, at(2));
  exit_one(supervisor, 1, kOk, 3);
  const MemberExit earlier{.member = 2, .status = kOk, .is_earlier = true};
  supervisor.exited({&earlier, 1}, at(3));
  EXPECT_THAT(supervisor.result().stopped, ElementsAre(1));
  EXPECT_EQ(supervisor.result().interrupted_by, SIGTERM);
}

struct ReactionCase {
  ExitStatus status;
  int second;  // of the end; the signal arrives in second 1
  int interrupted_by;
  std::vector<int> stopped;
};

// Slurm's --signal: the program saves its state, and ends with 75 or 0.
TEST(Supervisor, EndSoonAfterForwardedSignalIsItsEffect) {
  for (const ReactionCase& row :
       {ReactionCase{code(75), 21, SIGUSR1, {}}, ReactionCase{kOk, 21, SIGUSR1, {0}}, ReactionCase{code(75), 22, 0, {}},
        ReactionCase{kOk, 22, 0, {}}, ReactionCase{code(1), 2, 0, {}}, ReactionCase{died(SIGUSR1), 2, 0, {}}}) {
    Supervisor supervisor(1, kGrace);
    supervisor.signalled(SIGUSR1, at(1));
    exit_one(supervisor, 0, row.status, row.second);
    EXPECT_EQ(supervisor.result().exit_code, row.status.exit_code());
    EXPECT_EQ(supervisor.result().interrupted_by, row.interrupted_by) << describe(row.status) << row.second;
    EXPECT_EQ(supervisor.result().stopped, row.stopped);
  }
}

TEST(Supervisor, ReportsSignalThatStartedTheStop) {
  Supervisor supervisor(2, kGrace);
  supervisor.signalled(SIGTERM, at(1));
  supervisor.signalled(SIGHUP, at(2));
  supervisor.signalled(SIGINT, at(3));
  EXPECT_EQ(supervisor.result().interrupted_by, SIGTERM);
  Supervisor failed(2, kGrace);
  exit_one(failed, 0, code(1), 1);
  failed.signalled(SIGTERM, at(2));
  EXPECT_EQ(failed.result().interrupted_by, 0) << "a rank's failure began the stop";
}

TEST(Supervisor, SecondInterruptSendsSigkill) {
  Supervisor supervisor(2, kGrace);
  supervisor.signalled(SIGINT, at(1));
  EXPECT_THAT(supervisor.signalled(SIGINT, at(2)), ElementsAre(GroupSignal{0, SIGKILL}, GroupSignal{1, SIGKILL}));
  EXPECT_THAT(supervisor.signalled(SIGINT, at(3)), IsEmpty());
}

TEST(Supervisor, SecondTermDoesNotExtendTheGrace) {
  Supervisor supervisor(1, kGrace);
  supervisor.signalled(SIGTERM, at(1));
  EXPECT_THAT(supervisor.signalled(SIGTERM, at(9)), ElementsAre(GroupSignal{0, SIGTERM}));
  EXPECT_EQ(supervisor.deadline(), at(21));
}

TEST(Supervisor, StopsAndAwaitsLeftovers) {
  Supervisor supervisor(2, kGrace);
  EXPECT_THAT(exit_one(supervisor, 0, kOk, 1, true), ElementsAre(GroupSignal{0, SIGTERM}));
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.running(), 1);
  exit_one(supervisor, 1, kOk, 2);
  EXPECT_FALSE(supervisor.finished());
  EXPECT_THAT(supervisor.time_passed(at(21)), ElementsAre(GroupSignal{0, SIGKILL}));
  supervisor.group_emptied(0);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.result().exit_code, 0);
}

TEST(Supervisor, LeftoversShareGraceOfTheirMember) {
  Supervisor supervisor(1, kGrace);
  supervisor.signalled(SIGTERM, at(1));
  EXPECT_THAT(exit_one(supervisor, 0, died(SIGTERM), 5, true), IsEmpty());  // the group had its SIGTERM
  EXPECT_EQ(supervisor.deadline(), at(21));
}

TEST(Supervisor, AbandonsMemberThatSurvivesSigkill) {
  Supervisor supervisor(1, kGrace);
  supervisor.signalled(SIGTERM, at(0));
  supervisor.time_passed(at(20));
  EXPECT_EQ(supervisor.deadline(), at(30));
  EXPECT_THAT(supervisor.time_passed(at(30)), IsEmpty());
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.result().exit_code, 137);
}

// In every order of events, the group ends, and no member receives a signal after its end.
TEST(Supervisor, EveryOrderOfEventsTerminates) {
  const std::vector<ExitStatus> statuses = {kOk, code(1), code(75), code(76), died(SIGSEGV), died(SIGTERM)};
  const std::vector<int> signals = {0, SIGTERM, SIGINT, SIGUSR1};
  int orders = 0;
  for (const ExitStatus& first : statuses) {
    for (const ExitStatus& second : statuses) {
      for (const int before : signals) {
        for (const int between : signals) {
          for (const bool leftovers : {false, true}) {
            Supervisor supervisor(2, kGrace);
            if (before != 0) supervisor.signalled(before, at(1));
            exit_one(supervisor, 0, first, 2, leftovers);
            if (between != 0) {
              for (const GroupSignal& signal : supervisor.signalled(between, at(3)))
                EXPECT_TRUE(leftovers || signal.member == 1);
            }
            EXPECT_THAT(exit_one(supervisor, 1, second, 4), testing::Each(testing::Field(&GroupSignal::member, 0)));
            supervisor.time_passed(at(40));
            supervisor.time_passed(at(60));
            EXPECT_TRUE(supervisor.finished());
            EXPECT_EQ(supervisor.result().exit_code == 0, first.ok() && second.ok());
            ++orders;
          }
        }
      }
    }
  }
  EXPECT_EQ(orders, 6 * 6 * 4 * 4 * 2);
}

}  // namespace
}  // namespace oarlock::launch
