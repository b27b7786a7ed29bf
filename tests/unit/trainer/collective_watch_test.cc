// Failed collectives that the host does not wait for, as with NCCL: the classification of the group's state, and the
// path from the state to the exit code. The state is simulated, because unit tests have no GPU.
#include "ddp/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "common/files.h"
#include "ddp/init_distributed.h"
#include "ddp/library_errors.h"
#include "tests/support/temporary_directory.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(CollectiveError, ReportsUnhealthyStates) {
  EXPECT_FALSE(collective_error(GroupState::kHealthy, seconds(600)));
  const auto late = collective_error(GroupState::kTimedOut, milliseconds(1500));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code, ExitCode::kPeerLost);
  EXPECT_THAT(late->message, AllOf(HasSubstr("a collective timed out"), HasSubstr("not finished after 1.5 s"),
                                   HasSubstr("raise the timeout of the process group")));
  const auto broken = collective_error(GroupState::kBroken, seconds(600));
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->code, ExitCode::kPeerLost);
  EXPECT_THAT(broken->message, HasSubstr("another rank was lost"));
}

// The rank whose GPU fails also detects a broken connection, and must not be reported as a collateral failure.
TEST(CollectiveError, PrefersErrorOfOwnDevice) {
  const auto failed = collective_error(GroupState::kBroken, seconds(600), "uncorrectable ECC error encountered");
  ASSERT_TRUE(failed);
  EXPECT_EQ(to_int(failed->code), 79);
  EXPECT_THAT(failed->message, HasSubstr("uncorrectable ECC error encountered"));
  EXPECT_EQ(collective_error(GroupState::kBroken, seconds(600), "an illegal memory access was encountered")->code,
            ExitCode::kSoftware);
  EXPECT_FALSE(collective_error(GroupState::kHealthy, seconds(600), "unknown error"));
}

TEST(ConnectError, ReportsDeadlineAndSignal) {
  EXPECT_FALSE(connect_error(seconds(299), seconds(300), 0));
  const auto late = connect_error(seconds(301), seconds(300), 0);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code, ExitCode::kPeerLost);
  EXPECT_THAT(late->message, AllOf(HasSubstr("within 300 s"), HasSubstr("timeout of the rendezvous")));
  const auto stopped = connect_error(seconds(1), seconds(300), SIGTERM);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->code, ExitCode::kTempFail);
  EXPECT_THAT(stopped->message, HasSubstr("signal 15"));
}

TEST(Watchdog, ChecksUntilDestroyed) {
  std::atomic<int> checks = 0;
  {
    const auto probe = [&] {
      ++checks;
      return GroupState::kHealthy;
    };
    const Watchdog watchdog(collective_check(probe, seconds(600)), milliseconds(1));
    while (checks < 3) ::usleep(100);
  }
  const int count = checks;
  EXPECT_GE(count, 3);
  EXPECT_EQ(checks, count) << "checked after destruction";
}

// Rank 0 of three waits for its device, which waits for rank 1, until the group has the state `failed`.
[[noreturn]] void wait_for_device(GroupState failed, const std::string& termination_log) {
  const std::vector<PeerActivity> activities = {{"backward", 3, 9}, {"data_wait", 2, 7}, {"backward", 3, 9}};
  std::vector<std::unique_ptr<PeerMonitor>> peers;
  std::vector<PeerAddress> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    peers.push_back(*PeerMonitor::start(rank, [activity = activities[static_cast<size_t>(rank)]] { return activity; }));
    addresses.push_back({"127.0.0.1", peers.back()->port()});
  }
  for (const auto& peer : peers) peer->set_peers(addresses);
  install_terminate_handler({termination_log, 0, "RANK 0"}, [&](const std::exception_ptr& exception) {
    const Error error = with_peer_diagnosis(to_error(exception), peers[0].get());
    return ProcessExit{error.code, {0, 3, 2, exit_reason(error.code), error.message}};
  });
  std::atomic<int> probes = 0;
  const auto probe = [&] { return ++probes < 3 ? GroupState::kHealthy : failed; };
  const Watchdog watchdog(collective_check(probe, seconds(600)), milliseconds(1));
  for (;;) ::pause();
}

TEST(Watchdog, ExitsWithCode76AndNamesMissingRank) {
  const test::TemporaryDirectory directory;
  const std::string log = directory.path() / "termination-log";
  const std::string diagnosis = "rank 1 has not arrived .it is at step 2, data_wait, collective 7.";
  EXPECT_EXIT(wait_for_device(GroupState::kTimedOut, log), testing::ExitedWithCode(to_int(ExitCode::kPeerLost)),
              diagnosis + ".*a collective timed out");
  const auto last = termination_message_from_json(*read_file(log));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->reason, "PeerLost");
  EXPECT_EQ(last->step, 3);
  EXPECT_THAT(last->message, HasSubstr("rank 1 has not arrived"));
  EXPECT_EXIT(wait_for_device(GroupState::kBroken, log), testing::ExitedWithCode(to_int(ExitCode::kPeerLost)),
              diagnosis + ".*another rank was lost");
}

}  // namespace
}  // namespace oarlock
