// The diagnosis of a stuck collective: as a pure function, and over real connections between threads.
#include "ddp/peer_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "ddp/socket.h"

namespace oarlock {
namespace {

using State = PeerReport::State;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const PeerActivity kOwn = {.phase = "backward", .step = 12, .collective = 57};

PeerReport answering(int rank, const std::string& phase, int64_t step, int64_t collective) {
  return {.rank = rank, .state = State::kAnswers, .activity = {phase, step, collective}};
}

TEST(Diagnosis, NamesSilentRank) {
  const std::vector<PeerReport> peers = {answering(0, "backward", 12, 57),
                                         {.rank = 1, .state = State::kSilent, .activity = {}}};
  EXPECT_EQ(
      diagnose(kOwn, peers),
      "rank 1 does not respond (stopped, or the host is cut off); this rank is at step 12, backward, collective 57");
}

TEST(Diagnosis, NamesLaggingRankAndPhase) {
  const std::vector<PeerReport> peers = {answering(0, "data_wait", 12, 55), answering(1, "backward", 12, 57)};
  EXPECT_EQ(diagnose(kOwn, peers),
            "rank 0 has not arrived (it is at step 12, data_wait, collective 55); this rank is at step 12, backward, "
            "collective 57");
}

TEST(Diagnosis, CombinesSilentLaggingAndExitedRanks) {
  const std::vector<PeerReport> peers = {answering(0, "eval", 12, 50),
                                         {.rank = 1, .state = State::kSilent, .activity = {}},
                                         {.rank = 2, .state = State::kSilent, .activity = {}},
                                         {.rank = 3, .state = State::kGone, .activity = {}}};
  EXPECT_THAT(diagnose(kOwn, peers),
              AllOf(HasSubstr("ranks 1, 2 do not respond"), HasSubstr("rank 0 is behind, too (it is at step 12, eval"),
                    HasSubstr("rank 3 has exited")));
}

// The host does not count the collectives of a replayed CUDA graph.
TEST(Diagnosis, ComparesStepBeforeCollective) {
  const std::vector<PeerReport> peers = {answering(0, "data_wait", 11, 57), answering(1, "data_wait", 12, 57)};
  EXPECT_THAT(diagnose(kOwn, peers),
              AllOf(HasSubstr("rank 0 has not arrived (it is at step 11, data_wait"), Not(HasSubstr("rank 1"))));
}

TEST(Diagnosis, SuggestsNetworkIfNoRankLags) {
  const std::vector<PeerReport> level = {answering(0, "backward", 12, 57)};
  EXPECT_THAT(diagnose(kOwn, level), HasSubstr("check the network"));
  const std::vector<PeerReport> ahead = {answering(0, "backward", 13, 60)};
  EXPECT_THAT(diagnose(kOwn, ahead), HasSubstr("are ahead of this one"));
}

struct Monitors {
  explicit Monitors(std::vector<PeerActivity> activities) {
    std::vector<PeerAddress> addresses;
    for (size_t rank = 0; rank < activities.size(); ++rank) {
      monitors.push_back(
          *PeerMonitor::start(static_cast<int>(rank), [activity = activities[rank]] { return activity; }));
      addresses.push_back({"127.0.0.1", monitors.back()->port()});
    }
    for (const auto& monitor : monitors) monitor->set_peers(addresses);
  }
  std::vector<std::unique_ptr<PeerMonitor>> monitors;
};

TEST(PeerMonitor, QueriesPeersAndSharesDiagnosis) {
  Monitors ranks({{"backward", 3, 9}, {"data_wait", 2, 7}, {"backward", 3, 9}});
  const std::string from_0 = ranks.monitors[0]->diagnose_peers(milliseconds(5000));
  EXPECT_EQ(from_0,
            "rank 1 has not arrived (it is at step 2, data_wait, collective 7); this rank is at step 3, backward, "
            "collective 9");
  // A rank that diagnoses later has received the reason for the exit of rank 0.
  ranks.monitors[0].reset();
  EXPECT_THAT(ranks.monitors[2]->diagnose_peers(milliseconds(5000)),
              AllOf(HasSubstr("rank 0 gave up: rank 1 has not arrived"), HasSubstr("rank 0 has exited")));
}

TEST(PeerMonitor, PutsFinalMessageFirst) {
  Monitors ranks({{"backward", 3, 9}, {"forward", 3, 8}});
  ranks.monitors[1]->report_exit("failed: no memory\nat all", milliseconds(5000));
  ranks.monitors[1].reset();
  EXPECT_THAT(ranks.monitors[0]->diagnose_peers(milliseconds(5000)),
              testing::StartsWith("rank 1 failed: no memory at all; "));
}

TEST(PeerMonitor, ReportsUnansweredConnectionAsSilent) {
  const auto listener = listen_on(0);  // the kernel accepts connections, and no process reads from them
  ASSERT_TRUE(listener);
  const FileDescriptor owner(listener->descriptor);
  const auto monitor = PeerMonitor::start(0, [] { return kOwn; });
  ASSERT_TRUE(monitor);
  (*monitor)->set_peers({{"127.0.0.1", (*monitor)->port()}, {"127.0.0.1", listener->port}});
  EXPECT_THAT((*monitor)->diagnose_peers(milliseconds(100)), HasSubstr("rank 1 does not respond"));
}

TEST(PeerMonitor, ToleratesAnswersWithWrongTypes) {
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
    char request[16];
    while (::recv(socket.get(), request, sizeof request, 0) > 0) {
    }
  });
  const auto monitor = PeerMonitor::start(0, [] { return kOwn; });
  ASSERT_TRUE(monitor);
  (*monitor)->set_peers({{"127.0.0.1", (*monitor)->port()}, {"127.0.0.1", listener->port}});
  EXPECT_THAT((*monitor)->diagnose_peers(milliseconds(5000)), HasSubstr("rank 1 has not arrived (it is at step 0"));
}

TEST(PeerMonitor, IgnoresMalformedRequests) {
  Monitors ranks({{"backward", 3, 9}, {"forward", 3, 8}});
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, 'x'), std::string("?")}) {
    auto socket = start_connect("127.0.0.1", ranks.monitors[1]->port());
    ASSERT_TRUE(socket);
    while (::send(socket->get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EAGAIN) {
    }
  }
  EXPECT_THAT(ranks.monitors[0]->diagnose_peers(milliseconds(5000)), HasSubstr("rank 1 has not arrived"));
}

}  // namespace
}  // namespace oarlock
