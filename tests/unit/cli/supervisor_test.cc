// The launcher's decisions as tables: what happens, in order, and what must follow.
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

// ---- verdicts ----------------------------------------------------------------------------------------------------

// Things that happen one second after the other.
struct Ends {  // together, in one look at the children
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
  int members;
  std::vector<Event> events;
  int exit_code;
  int member;
};

class VerdictTest : public testing::TestWithParam<Case> {};

TEST_P(VerdictTest, FirstRealFailureDecides) {
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
  EXPECT_EQ(supervisor.verdict().exit_code, GetParam().exit_code);
  EXPECT_EQ(supervisor.verdict().member, GetParam().member);
}

INSTANTIATE_TEST_SUITE_P(
    Table, VerdictTest,
    testing::Values(
        Case{"AllSucceed", 2, {ends(0, kOk), ends(1, kOk)}, 0, -1},  //
        Case{"OneFails", 2, {ends(0, kOk), ends(1, code(3))}, 3, 1},
        Case{"FailureThenPeersLost", 3, {ends(1, code(65)), ends(0, code(76)), ends(2, code(76))}, 65, 1},
        Case{"PeersLostThenFailure", 3, {ends(0, code(76)), ends(2, code(76)), ends(1, code(65))}, 65, 1},
        Case{"CrashSeenTogetherWithErrorExit", 2, {Ends{{{0, code(1), false}, {1, died(SIGSEGV), false}}}}, 139, 1},
        Case{"CrashSeenTogetherWithPeerLost", 2, {Ends{{{0, code(76), false}, {1, died(SIGKILL), false}}}}, 137, 1},
        Case{"OnlyPeersLost", 2, {ends(0, code(76)), ends(1, code(76))}, 76, 0},
        Case{"PeerLostThenStopped", 2, {ends(0, code(76)), GracePasses{}, ends(1, died(SIGTERM))}, 76, 0},
        Case{"PeerLostThenSaved", 2, {ends(0, code(76)), GracePasses{}, ends(1, code(75))}, 76, 0},
        Case{"PeerLostThenOutOfGrace",
             2,
             {ends(0, code(76)), GracePasses{}, GracePasses{}, ends(1, died(SIGKILL))},
             76,
             0},
        Case{"FailureThenStubborn", 2, {ends(0, code(78)), GracePasses{}, ends(1, died(SIGKILL))}, 78, 0},
        Case{"FailureThenOtherFailure", 2, {ends(1, code(4)), ends(0, code(5))}, 4, 1},
        Case{"FailureThenCrash", 2, {ends(1, code(4)), ends(0, died(SIGABRT))}, 4, 1},
        Case{"SuccessThenFailure", 2, {ends(0, kOk), ends(1, died(SIGKILL))}, 137, 1},
        Case{"KilledFromOutside", 1, {ends(0, died(SIGKILL))}, 137, 0},
        Case{"StoppedFromOutsideThenSaved", 2, {ends(0, died(SIGTERM)), ends(1, code(75))}, 143, 0},
        Case{"TemporaryFailureUnasked", 2, {ends(0, code(75)), ends(1, died(SIGTERM))}, 75, 0},
        Case{"InterruptedAndSaved", 2, {Signal{SIGTERM}, ends(1, died(SIGTERM)), ends(0, code(75))}, 75, 0},
        Case{"InterruptedAndDone", 2, {Signal{SIGTERM}, ends(1, kOk), ends(0, kOk)}, 0, -1},
        Case{"InterruptedAllDie", 2, {Signal{SIGINT}, ends(1, died(SIGINT)), ends(0, code(130))}, 130, 1},
        Case{"InterruptedPeerLost", 2, {Signal{SIGTERM}, ends(1, code(76)), ends(0, code(143))}, 76, 1},
        Case{"InterruptedPeerLostSaved", 2, {Signal{SIGTERM}, ends(1, code(76)), ends(0, code(75))}, 75, 0},
        Case{"InterruptedOutOfGrace",
             2,
             {Signal{SIGTERM}, ends(1, code(75)), GracePasses{}, ends(0, died(SIGKILL))},
             137,
             0},
        Case{"InterruptedAndFailed", 2, {Signal{SIGTERM}, ends(1, code(75)), ends(0, code(74))}, 74, 0},
        Case{"InterruptedAndCrashed", 2, {Signal{SIGTERM}, ends(1, code(75)), ends(0, died(SIGSEGV))}, 139, 0},
        Case{"FailedThenInterrupted", 2, {ends(0, code(66)), Signal{SIGTERM}, ends(1, code(75))}, 66, 0},
        Case{"HangsInTheKernel", 2, {Signal{SIGTERM}, ends(1, code(75)), GracePasses{}, GracePasses{}}, 137, 0}),
    [](const auto& row) { return row.param.name; });

// ---- signals and time --------------------------------------------------------------------------------------------

Supervisor::Signals exit_one(Supervisor& supervisor, int member, ExitStatus status, int second,
                             bool leftovers = false) {
  const MemberExit exit{member, status, leftovers};
  return supervisor.exited({&exit, 1}, at(second));
}

TEST(Supervisor, FailureStopsTheOthersOnce) {
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

TEST(Supervisor, ALostPeerGivesTheCulpritTimeToSpeak) {
  Supervisor supervisor(3, kGrace);
  EXPECT_THAT(exit_one(supervisor, 0, code(76), 5), IsEmpty());
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), at(7));
  EXPECT_THAT(exit_one(supervisor, 1, code(65), 6), ElementsAre(GroupSignal{2, SIGTERM}));
  exit_one(supervisor, 2, died(SIGTERM), 6);
  EXPECT_EQ(supervisor.verdict().exit_code, 65);
}

TEST(Supervisor, AfterALostPeerTheRestIsStoppedAnyway) {
  Supervisor supervisor(2, kGrace);
  exit_one(supervisor, 0, code(76), 5);
  EXPECT_THAT(supervisor.time_passed(at(7)), ElementsAre(GroupSignal{1, SIGTERM}));
  EXPECT_TRUE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), at(27));
  exit_one(supervisor, 1, died(SIGTERM), 8);
  EXPECT_EQ(supervisor.verdict().exit_code, 76);
}

TEST(Supervisor, SuccessStopsNobody) {
  Supervisor supervisor(2, kGrace);
  EXPECT_THAT(exit_one(supervisor, 0, kOk, 1), IsEmpty());
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), std::nullopt);
}

TEST(Supervisor, ForwardsStopSignalsAsTheyAre) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Supervisor supervisor(2, kGrace);
    EXPECT_THAT(supervisor.signalled(signal, at(1)), ElementsAre(GroupSignal{0, signal}, GroupSignal{1, signal}));
    EXPECT_EQ(supervisor.deadline(), at(21));
    EXPECT_EQ(supervisor.verdict().interrupted_by, signal);
  }
}

TEST(Supervisor, ForwardsOtherSignalsWithoutStopping) {
  Supervisor supervisor(2, kGrace);
  exit_one(supervisor, 0, kOk, 1);
  EXPECT_THAT(supervisor.signalled(SIGUSR1, at(2)), ElementsAre(GroupSignal{1, SIGUSR1}));
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.deadline(), std::nullopt);
  EXPECT_EQ(supervisor.verdict().interrupted_by, 0);
}

TEST(Supervisor, ReportsTheSignalThatBeganTheStop) {
  Supervisor supervisor(2, kGrace);
  supervisor.signalled(SIGTERM, at(1));
  supervisor.signalled(SIGHUP, at(2));
  supervisor.signalled(SIGINT, at(3));
  EXPECT_EQ(supervisor.verdict().interrupted_by, SIGTERM);
  Supervisor failed(2, kGrace);
  exit_one(failed, 0, code(1), 1);
  failed.signalled(SIGTERM, at(2));
  EXPECT_EQ(failed.verdict().interrupted_by, 0) << "a rank's failure began the stop";
}

TEST(Supervisor, SecondInterruptKeyKills) {
  Supervisor supervisor(2, kGrace);
  supervisor.signalled(SIGINT, at(1));
  EXPECT_THAT(supervisor.signalled(SIGINT, at(2)), ElementsAre(GroupSignal{0, SIGKILL}, GroupSignal{1, SIGKILL}));
  EXPECT_THAT(supervisor.signalled(SIGINT, at(3)), IsEmpty());
}

TEST(Supervisor, SecondTermIsForwardedAndDoesNotExtendTheGrace) {
  Supervisor supervisor(1, kGrace);
  supervisor.signalled(SIGTERM, at(1));
  EXPECT_THAT(supervisor.signalled(SIGTERM, at(9)), ElementsAre(GroupSignal{0, SIGTERM}));
  EXPECT_EQ(supervisor.deadline(), at(21));
}

TEST(Supervisor, LeftoversAreStoppedAndWaitedFor) {
  Supervisor supervisor(2, kGrace);
  EXPECT_THAT(exit_one(supervisor, 0, kOk, 1, true), ElementsAre(GroupSignal{0, SIGTERM}));
  EXPECT_FALSE(supervisor.stopping());
  EXPECT_EQ(supervisor.running(), 1);
  exit_one(supervisor, 1, kOk, 2);
  EXPECT_FALSE(supervisor.finished());
  EXPECT_THAT(supervisor.time_passed(at(21)), ElementsAre(GroupSignal{0, SIGKILL}));
  supervisor.group_emptied(0);
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.verdict().exit_code, 0);
}

TEST(Supervisor, LeftoversOfAStoppedMemberKeepItsGrace) {
  Supervisor supervisor(1, kGrace);
  supervisor.signalled(SIGTERM, at(1));
  EXPECT_THAT(exit_one(supervisor, 0, died(SIGTERM), 5, true), IsEmpty());  // the group had its SIGTERM
  EXPECT_EQ(supervisor.deadline(), at(21));
}

TEST(Supervisor, WhatOutlivesSigkillIsGivenUp) {
  Supervisor supervisor(1, kGrace);
  supervisor.signalled(SIGTERM, at(0));
  supervisor.time_passed(at(20));
  EXPECT_EQ(supervisor.deadline(), at(30));
  EXPECT_THAT(supervisor.time_passed(at(30)), IsEmpty());
  EXPECT_TRUE(supervisor.finished());
  EXPECT_EQ(supervisor.verdict().exit_code, 137);
}

// Whatever happens in whatever order, the group ends, and nobody is signalled after it is gone.
TEST(Supervisor, EveryOrderOfEventsEnds) {
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
            EXPECT_EQ(supervisor.verdict().exit_code == 0, first.ok() && second.ok());
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
