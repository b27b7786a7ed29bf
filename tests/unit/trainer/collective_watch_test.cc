// What becomes of a collective that fails behind the host's back, as NCCL's do: the verdict, and the whole way from the
// group's state to the exit code, with a state that is set by hand, as there is no GPU here.
#include "trainer/distributed/collective_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "common/files.h"
#include "tests/support/temporary_folder.h"
#include "trainer/distributed/connection.h"
#include "trainer/distributed/failure.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(Verdict, OnlyAStateThatIsBadIsOne) {
  EXPECT_FALSE(verdict(GroupState::kWorks, seconds(600)));
  const auto late = verdict(GroupState::kTimedOut, milliseconds(1500));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code, ExitCode::kPeerLost);
  EXPECT_THAT(late->message, AllOf(HasSubstr("a collective timed out"), HasSubstr("no end after 1.5 s"),
                                   HasSubstr("distributed.timeout_seconds")));
  const auto broken = verdict(GroupState::kBroken, seconds(600));
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->code, ExitCode::kPeerLost);
  EXPECT_THAT(broken->message, HasSubstr("another rank was lost"));
}

// The rank whose GPU fails sees a broken connection, too, and must not pass for collateral.
TEST(Verdict, BrokenConnectionWithFaultOfOwnDeviceIsThatFault) {
  const auto failed = verdict(GroupState::kBroken, seconds(600), "uncorrectable ECC error encountered");
  ASSERT_TRUE(failed);
  EXPECT_EQ(to_int(failed->code), 79);
  EXPECT_THAT(failed->message, HasSubstr("uncorrectable ECC error encountered"));
  EXPECT_EQ(verdict(GroupState::kBroken, seconds(600), "an illegal memory access was encountered")->code,
            ExitCode::kSoftware);
  EXPECT_FALSE(verdict(GroupState::kWorks, seconds(600), "unknown error"));
}

TEST(ConnectVerdict, GivesUpAtTheDeadlineOrOnASignal) {
  EXPECT_FALSE(connect_verdict(seconds(299), seconds(300), 0));
  const auto late = connect_verdict(seconds(301), seconds(300), 0);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->code, ExitCode::kPeerLost);
  EXPECT_THAT(late->message, AllOf(HasSubstr("within 300 s"), HasSubstr("distributed.rendezvous_timeout_seconds")));
  const auto stopped = connect_verdict(seconds(1), seconds(300), SIGTERM);
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->code, ExitCode::kTempFail);
  EXPECT_THAT(stopped->message, HasSubstr("signal 15"));
}

TEST(CollectiveWatch, LooksAgainAndAgainAndStopsWithoutAWord) {
  std::atomic<int> looks = 0;
  {
    const CollectiveWatch watch(
        [&] {
          ++looks;
          return GroupState::kWorks;
        },
        seconds(600), milliseconds(1));
    while (looks < 3) ::usleep(100);
  }
  const int seen = looks;
  EXPECT_GE(seen, 3);
  EXPECT_EQ(looks, seen) << "it looked after its end";
}

// Rank 0 of three waits for its device, which waits for rank 1.
[[noreturn]] void wait_for_the_device(GroupState becomes, const std::string& termination_log) {
  const std::vector<Activity> activities = {{"backward", 3, 9}, {"data_wait", 2, 7}, {"backward", 3, 9}};
  std::vector<std::unique_ptr<PeerWatch>> peers;
  std::vector<PeerAddress> addresses;
  for (int rank = 0; rank < 3; ++rank) {
    peers.push_back(*PeerWatch::start(rank, [activity = activities[static_cast<size_t>(rank)]] { return activity; }));
    addresses.push_back({"127.0.0.1", peers.back()->port()});
  }
  for (const auto& peer : peers) peer->set_peers(addresses);
  exit_on_terminate({termination_log, 0, "RANK 0"}, [&](const std::exception_ptr& exception) {
    const Error error = explained(to_error(exception), peers[0].get());
    return LastWord{error.code, {0, 3, 2, reason_of(error.code), error.message}};
  });
  std::atomic<int> looks = 0;
  const CollectiveWatch watch([&] { return ++looks < 3 ? GroupState::kWorks : becomes; }, seconds(600),
                              milliseconds(1));
  for (;;) ::pause();
}

TEST(CollectiveWatch, EndsTheProcessWith76AndNamesTheRank) {
  const test::TemporaryFolder folder;
  const std::string log = folder.path() / "termination-log";
  const std::string named = "rank 1 has not arrived .it is at step 2, data_wait, collective 7.";
  EXPECT_EXIT(wait_for_the_device(GroupState::kTimedOut, log), testing::ExitedWithCode(to_int(ExitCode::kPeerLost)),
              named + ".*a collective timed out");
  const auto last = termination_message_from_json(*read_file(log));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->reason, "PeerLost");
  EXPECT_EQ(last->step, 3);
  EXPECT_THAT(last->message, HasSubstr("rank 1 has not arrived"));
  EXPECT_EXIT(wait_for_the_device(GroupState::kBroken, log), testing::ExitedWithCode(to_int(ExitCode::kPeerLost)),
              named + ".*another rank was lost");
}

}  // namespace
}  // namespace oarlock
