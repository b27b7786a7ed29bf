// Who is named, as a table over what the ranks say; and the same over real connections between threads.
#include "trainer/distributed/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "trainer/distributed/peer_watch.h"

namespace oarlock {
namespace {

using State = PeerReport::State;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Activity kHere = {.phase = "backward", .step = 12, .collective = 57};

PeerReport answering(int rank, const std::string& phase, int64_t step, int64_t collective) {
  return {.rank = rank, .state = State::kAnswers, .activity = {phase, step, collective}};
}

TEST(Diagnosis, TheSilentRankIsNamedAndThoseThatWaitAreNot) {
  const std::vector<PeerReport> peers = {answering(0, "backward", 12, 57),
                                         {.rank = 1, .state = State::kSilent, .activity = {}}};
  EXPECT_EQ(
      diagnose(kHere, peers),
      "rank 1 does not answer (stopped, or the host is cut off); this rank is at step 12, backward, collective 57");
}

TEST(Diagnosis, TheRankThatIsBehindIsNamedWithItsPhase) {
  const std::vector<PeerReport> peers = {answering(0, "data_wait", 12, 55), answering(1, "backward", 12, 57)};
  EXPECT_EQ(diagnose(kHere, peers),
            "rank 0 has not arrived (it is at step 12, data_wait, collective 55); this rank is at step 12, backward, "
            "collective 57");
}

TEST(Diagnosis, SeveralKindsAtOnce) {
  const std::vector<PeerReport> peers = {answering(0, "eval", 12, 50),
                                         {.rank = 1, .state = State::kSilent, .activity = {}},
                                         {.rank = 2, .state = State::kSilent, .activity = {}},
                                         {.rank = 3, .state = State::kGone, .activity = {}}};
  EXPECT_THAT(diagnose(kHere, peers),
              AllOf(HasSubstr("ranks 1, 2 do not answer"), HasSubstr("rank 0 is behind, too (it is at step 12, eval"),
                    HasSubstr("rank 3 has ended")));
}

// A replayed CUDA graph starts no collectives that the host could count.
TEST(Diagnosis, TheStepCountsBeforeTheCollective) {
  const std::vector<PeerReport> peers = {answering(0, "data_wait", 11, 57), answering(1, "data_wait", 12, 57)};
  EXPECT_THAT(diagnose(kHere, peers),
              AllOf(HasSubstr("rank 0 has not arrived (it is at step 11, data_wait"), Not(HasSubstr("rank 1"))));
}

TEST(Diagnosis, NobodyToBlame) {
  const std::vector<PeerReport> level = {answering(0, "backward", 12, 57)};
  EXPECT_THAT(diagnose(kHere, level), HasSubstr("look at the network"));
  const std::vector<PeerReport> ahead = {answering(0, "backward", 13, 60)};
  EXPECT_THAT(diagnose(kHere, ahead), HasSubstr("went on without this one"));
}

struct Watches {
  explicit Watches(std::vector<Activity> activities) {
    std::vector<PeerAddress> addresses;
    for (size_t rank = 0; rank < activities.size(); ++rank) {
      watches.push_back(*PeerWatch::start(static_cast<int>(rank), [activity = activities[rank]] { return activity; }));
      addresses.push_back({"127.0.0.1", watches.back()->port()});
    }
    for (const auto& watch : watches) watch->set_peers(addresses);
  }
  std::vector<std::unique_ptr<PeerWatch>> watches;
};

TEST(PeerWatch, AsksAndTells) {
  Watches ranks({{"backward", 3, 9}, {"data_wait", 2, 7}, {"backward", 3, 9}});
  const std::string from_0 = ranks.watches[0]->explain(milliseconds(5000));
  EXPECT_EQ(from_0,
            "rank 1 has not arrived (it is at step 2, data_wait, collective 7); this rank is at step 3, backward, "
            "collective 9");
  // A rank that looks later has been told why rank 0 is gone.
  ranks.watches[0].reset();
  EXPECT_THAT(ranks.watches[2]->explain(milliseconds(5000)),
              AllOf(HasSubstr("rank 0 gave up: rank 1 has not arrived"), HasSubstr("rank 0 has ended")));
}

TEST(PeerWatch, ALastWordComesFirst) {
  Watches ranks({{"backward", 3, 9}, {"forward", 3, 8}});
  ranks.watches[1]->tell("failed: no memory\nat all", milliseconds(5000));
  ranks.watches[1].reset();
  EXPECT_THAT(ranks.watches[0]->explain(milliseconds(5000)), testing::StartsWith("rank 1 failed: no memory at all; "));
}

TEST(PeerWatch, APortWhereNobodyAnswersIsSilent) {
  const auto listener = listen_on(0);  // the kernel accepts, nobody reads
  ASSERT_TRUE(listener);
  const FileDescriptor owner(listener->descriptor);
  const auto watch = PeerWatch::start(0, [] { return kHere; });
  ASSERT_TRUE(watch);
  (*watch)->set_peers({{"127.0.0.1", (*watch)->port()}, {"127.0.0.1", listener->port}});
  EXPECT_THAT((*watch)->explain(milliseconds(100)), HasSubstr("rank 1 does not answer"));
}

TEST(PeerWatch, AnswersOfTheWrongTypesAreRead) {
  const auto listener = listen_on(0);
  ASSERT_TRUE(listener);
  const FileDescriptor owner(listener->descriptor);
  const std::jthread peer([&] {
    pollfd readable{owner.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 60'000), 1);
    const FileDescriptor socket(::accept(owner.get(), nullptr, nullptr));
    const std::string answer = R"({"phase": 1, "step": "x", "collective": 1e300})"
                               "\n";
    EXPECT_EQ(::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL), std::ssize(answer));
    char asked[16];
    while (::recv(socket.get(), asked, sizeof asked, 0) > 0) {
    }
  });
  const auto watch = PeerWatch::start(0, [] { return kHere; });
  ASSERT_TRUE(watch);
  (*watch)->set_peers({{"127.0.0.1", (*watch)->port()}, {"127.0.0.1", listener->port}});
  EXPECT_THAT((*watch)->explain(milliseconds(5000)), HasSubstr("rank 1 has not arrived (it is at step 0"));
}

TEST(PeerWatch, GarbageDoesNotEndIt) {
  Watches ranks({{"backward", 3, 9}, {"forward", 3, 8}});
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, 'x'), std::string("?")}) {
    auto socket = begin_to_reach("127.0.0.1", ranks.watches[1]->port());
    ASSERT_TRUE(socket);
    while (::send(socket->get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EAGAIN) {
    }
  }
  EXPECT_THAT(ranks.watches[0]->explain(milliseconds(5000)), HasSubstr("rank 1 has not arrived"));
}

}  // namespace
}  // namespace oarlock
