// The rendezvous of the ranks, and each of its failures: the exit code, and one line that names the cause.
#include "ddp/rendezvous.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "ddp/library_errors.h"
#include "ddp/socket.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Seconds that are too few for the deadlines below of 300 s, and enough for a busy machine.
constexpr double kSoon = 100;

struct Attempt {
  std::optional<Result<RendezvousResult>> result;

  const Error& error() const { return result->error(); }
};

// Never freed, because an abandoned call uses it until the process exits.
RealClock& abandoned_calls_clock() {
  static RealClock& clock = *new RealClock;
  return clock;
}

class Rendezvous : public testing::Test {
 protected:
  static void SetUpTestSuite() { silence_libtorch_log(); }

  RendezvousOptions options(int rank, int world_size = 2) const {
    return {rank, world_size, "127.0.0.1", port_, "uid-1", 0, milliseconds(300'000), "", "cpu", false};
  }

  // Runs each rank on its own thread.
  std::vector<Attempt> run(const std::vector<RendezvousOptions>& ranks) {
    std::vector<Attempt> attempts(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] { attempts[i].result = rendezvous(ranks[i], stop_, clock_); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Attempt& attempt : attempts) {
      if (!*attempt.result) {
        EXPECT_THAT(attempt.error().message, Not(HasSubstr("\n")));
      }
    }
    return attempts;
  }

  double seconds_of(const std::function<void()>& body) {
    const SteadyTime begin = clock_.steady();
    body();
    return std::chrono::duration<double>(clock_.steady() - begin).count();
  }

  const PortReservation reserved_ = test::reserve_ports();
  const int port_ = reserved_.first();
  const std::shared_ptr<StopFlag> stop_ = std::make_shared<StopFlag>();
  RealClock& clock_ = abandoned_calls_clock();
};

TEST_F(Rendezvous, UsesFallbackIfMasterDoesNotResolve) {
  auto ranks = std::vector{options(0), options(1)};
  ranks[1].master_addr = "gpu07.invalid";
  ranks[1].master_fallback = "127.0.0.1";
  const auto attempts = run(ranks);
  EXPECT_TRUE(*attempts[0].result);
  EXPECT_TRUE(*attempts[1].result);
}

TEST_F(Rendezvous, DifferingDevicesFailOnAllRanks) {
  auto ranks = std::vector{options(0), options(1)};
  ranks[0].device = "cuda";
  const auto attempts = run(ranks);
  for (const Attempt& attempt : attempts) {
    ASSERT_FALSE(*attempt.result);
    EXPECT_EQ(attempt.error().code, ExitCode::kConfig);
    EXPECT_THAT(attempt.error().message, AllOf(HasSubstr("rank 1 trains on 'cpu'"), HasSubstr("rank 0 on 'cuda'")));
  }
}

TEST_F(Rendezvous, DifferingSettingsFailOnAllRanks) {
  auto ranks = std::vector{options(0, 3), options(1, 3), options(2, 3)};
  for (RendezvousOptions& rank : ranks) rank.settings = {{"seed", "1"}, {"version", "9"}};
  ranks[2].settings["seed"] = "2";
  const auto attempts = run(ranks);
  for (const Attempt& attempt : attempts) {
    ASSERT_FALSE(*attempt.result);
    EXPECT_EQ(attempt.error().code, ExitCode::kConfig);
    EXPECT_THAT(attempt.error().message, HasSubstr("seed is 2 on rank 2, but 1 on rank 0"));
  }
}

// A restart may help the rank that fell back to the CPU; its failure is not the fault of the others.
TEST_F(Rendezvous, LostGpuFailsOnItsRank) {
  for (const size_t victim : {size_t{0}, size_t{1}}) {
    auto ranks = std::vector{options(0), options(1)};
    for (RendezvousOptions& rank : ranks) rank.device = "cuda";
    ranks[victim].device = "cpu";
    ranks[victim].has_lost_gpu = true;
    const auto attempts = run(ranks);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_FALSE(*attempts[rank].result);
      EXPECT_EQ(attempts[rank].error().code, rank == victim ? ExitCode::kDeviceFailed : ExitCode::kPeerLost);
      EXPECT_THAT(attempts[rank].error().message,
                  AllOf(HasSubstr("'cpu'"), HasSubstr("the GPU of the rank on the CPU, or its driver, failed")));
    }
  }
}

TEST_F(Rendezvous, ConnectsAllRanks) {
  const auto attempts = run({options(2, 3), options(0, 3), options(1, 3)});
  for (const Attempt& attempt : attempts) {
    ASSERT_TRUE(*attempt.result) << attempt.error().message;
    EXPECT_EQ((*attempt.result)->address, "127.0.0.1");
  }
}

TEST_F(Rendezvous, WaitsForLateMaster) {
  // A program that is not a store answers first, so the ranks must retry.
  const auto listener = listen_on(port_);
  ASSERT_TRUE(listener);
  Attempt one;
  std::thread rank_1([&] { one.result = rendezvous(options(1), stop_, clock_); });
  for (int i = 0; i < 2; ++i) ::close(::accept(listener->descriptor, nullptr, nullptr));
  ::close(listener->descriptor);
  const auto zero = run({options(0)});
  rank_1.join();
  ASSERT_TRUE(*zero[0].result) << zero[0].error().message;
  ASSERT_TRUE(*one.result) << one.error().message;
}

TEST_F(Rendezvous, TimesOutWithoutMaster) {
  RendezvousOptions late = options(1);
  late.timeout = milliseconds(1500);
  const double seconds = seconds_of([&] {
    const auto attempts = run({late});
    ASSERT_FALSE(*attempts[0].result);
    EXPECT_EQ(attempts[0].error().code, ExitCode::kTempFail);
    EXPECT_THAT(attempts[0].error().message, AllOf(HasSubstr("127.0.0.1:" + std::to_string(port_)), HasSubstr("1.5 s"),
                                                   HasSubstr("Connection refused"), HasSubstr("MASTER_ADDR")));
  });
  EXPECT_LT(seconds, kSoon);
}

TEST_F(Rendezvous, ReportsUnresolvableName) {
  RendezvousOptions nowhere = options(1);
  nowhere.master_addr = "no..such..name";  // rejected by the resolver without a query
  nowhere.timeout = milliseconds(300);
  const auto attempts = run({nowhere});
  ASSERT_FALSE(*attempts[0].result);
  EXPECT_EQ(attempts[0].error().code, ExitCode::kTempFail);
  EXPECT_THAT(attempts[0].error().message, AllOf(HasSubstr("no..such..name"), HasSubstr("does not resolve")));
}

TEST_F(Rendezvous, NamesMissingRanksOnAllRanks) {
  std::vector<RendezvousOptions> ranks = {options(0, 4), options(2, 4)};
  for (RendezvousOptions& rank : ranks) rank.timeout = milliseconds(3000);
  for (const Attempt& attempt : run(ranks)) {
    ASSERT_FALSE(*attempt.result);
    EXPECT_EQ(attempt.error().code, ExitCode::kTempFail);
    EXPECT_THAT(attempt.error().message, AllOf(HasSubstr("2 of 4 ranks"), HasSubstr("missing: rank 1, 3")));
  }
}

TEST_F(Rendezvous, ReportsPortInUse) {
  const auto listener = listen_on(port_);
  ASSERT_TRUE(listener);
  RendezvousOptions zero = options(0);
  zero.timeout = milliseconds(400);
  const auto attempts = run({zero});
  ::close(listener->descriptor);
  ASSERT_FALSE(*attempts[0].result);
  EXPECT_EQ(attempts[0].error().code, ExitCode::kTempFail) << "a new start may find it free";
  EXPECT_THAT(attempts[0].error().message,
              AllOf(HasSubstr("port " + std::to_string(port_)), HasSubstr("in use"), HasSubstr("MASTER_PORT")));
}

// An earlier pod on the host's network may still be terminating.
TEST_F(Rendezvous, WaitsForPortInUse) {
  class CountingClock final : public Clock {
   public:
    SystemTime now() const override { return clock_.now(); }
    SteadyTime steady() const override {
      ++calls_;
      return clock_.steady();
    }
    int calls() const { return calls_; }

   private:
    RealClock clock_;
    mutable std::atomic<int> calls_ = 0;
  };
  static CountingClock& clock = *new CountingClock;
  const auto listener = listen_on(port_);
  ASSERT_TRUE(listener);
  Attempt zero;
  std::thread rank_0([&] { zero.result = rendezvous(options(0), stop_, clock); });
  EXPECT_TRUE(test::eventually([&] { return clock.calls() > 10; })) << "rank 0 does not try again";
  ::close(listener->descriptor);
  const auto one = run({options(1)});
  rank_0.join();
  EXPECT_TRUE(*zero.result) << zero.error().message;
  EXPECT_TRUE(*one[0].result) << one[0].error().message;
}

TEST_F(Rendezvous, DifferingWorldSizesFailImmediately) {
  const double seconds = seconds_of([&] {
    for (const Attempt& attempt : run({options(0, 3), options(1, 3), options(2, 4)})) {
      ASSERT_FALSE(*attempt.result);
      EXPECT_EQ(attempt.error().code, ExitCode::kConfig);
      EXPECT_THAT(attempt.error().message,
                  AllOf(HasSubstr("WORLD_SIZE=3 on rank 0"), HasSubstr("WORLD_SIZE=4 on rank 2")));
    }
  });
  EXPECT_LT(seconds, kSoon) << "not by the deadline";
}

TEST_F(Rendezvous, DuplicateRankFailsImmediately) {
  const double seconds = seconds_of([&] {
    int refused = 0;
    for (const Attempt& attempt : run({options(0, 3), options(1, 3), options(1, 3)})) {
      ASSERT_FALSE(*attempt.result);
      EXPECT_EQ(attempt.error().code, ExitCode::kConfig);
      EXPECT_THAT(attempt.error().message, HasSubstr("RANK=1 is claimed twice"));
      ++refused;
    }
    EXPECT_EQ(refused, 3);
  });
  EXPECT_LT(seconds, kSoon) << "not by the deadline";
}

TEST_F(Rendezvous, RejectsMasterOfAnotherJob) {
  RendezvousOptions stranger = options(1);
  stranger.uid = "uid-2";
  stranger.timeout = milliseconds(3000);
  RendezvousOptions zombie = options(1);
  RendezvousOptions zero = options(0);
  RendezvousOptions one = options(1);
  zero.attempt = 1;
  one.attempt = 1;
  Attempt master;
  std::thread rank_0([&] { master.result = rendezvous(zero, stop_, clock_); });
  const auto refused = run({stranger, zombie});
  ASSERT_FALSE(*refused[0].result);
  EXPECT_EQ(refused[0].error().code, ExitCode::kTempFail) << "this job's rank 0 may be waiting for the port";
  EXPECT_THAT(refused[0].error().message, AllOf(HasSubstr("another job"), HasSubstr("uid-1"), HasSubstr("uid-2")));
  ASSERT_FALSE(*refused[1].result);
  EXPECT_EQ(refused[1].error().code, ExitCode::kConfig);
  EXPECT_THAT(refused[1].error().message, AllOf(HasSubstr("attempt 1"), HasSubstr("attempt 0"), HasSubstr("replaced")));
  const auto wanted = run({one});
  rank_0.join();
  EXPECT_TRUE(*wanted[0].result) << wanted[0].error().message;
  EXPECT_TRUE(*master.result) << master.error().message;
}

TEST_F(Rendezvous, WaitsForMasterOfOlderAttemptToExit) {
  RendezvousOptions old = options(0);
  RendezvousOptions one = options(1);
  one.attempt = 1;
  one.timeout = milliseconds(3000);
  Attempt master;
  std::thread rank_0([&] { master.result = rendezvous(old, stop_, clock_); });
  const auto waited = run({one});
  ASSERT_FALSE(*waited[0].result);
  EXPECT_EQ(waited[0].error().code, ExitCode::kTempFail) << "a retry may cure it: the old master will be gone";
  EXPECT_THAT(waited[0].error().message, HasSubstr("attempt 0 is still running, this is attempt 1"));
  stop_->raise(SIGTERM);
  rank_0.join();
  EXPECT_EQ(master.error().code, ExitCode::kTempFail);
}

// Any program that reaches the port can write an outcome. It must not decide how the job ends.
TEST_F(Rendezvous, ForeignOutcomeIsNeverPermanent) {
  for (const std::string outcome : {R"({"code": 70, "message": "a bug"})", R"({"code": "zero"})", R"({"code": 1e300})",
                                    R"(["code"])", "not JSON", ""}) {
    Attempt master;
    std::thread rank_0([&] { master.result = rendezvous(options(0), stop_, clock_); });
    while (!probe_endpoint("127.0.0.1", port_, milliseconds(1000))) std::this_thread::yield();
    c10d::TCPStoreOptions store;
    store.port = static_cast<uint16_t>(port_);
    store.waitWorkers = false;
    const auto stranger = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store);
    stranger->set("oarlock/go", std::vector<uint8_t>(outcome.begin(), outcome.end()));
    stranger->set("oarlock/full", std::vector<uint8_t>{1});
    rank_0.join();
    ASSERT_FALSE(*master.result) << outcome;
    EXPECT_EQ(master.error().code, ExitCode::kPeerLost) << outcome << ": " << master.error().message;
  }
}

TEST_F(Rendezvous, SignalEndsWait) {
  for (const int rank : {0, 1}) {
    Attempt attempt;
    const double seconds = seconds_of([&] {
      std::thread waiting([&] { attempt.result = rendezvous(options(rank), stop_, clock_); });
      stop_->raise(SIGTERM);
      waiting.join();
    });
    ASSERT_FALSE(*attempt.result);
    EXPECT_EQ(attempt.error().code, ExitCode::kTempFail);
    EXPECT_THAT(attempt.error().message, HasSubstr("interrupted by signal 15"));
    EXPECT_LT(seconds, kSoon);
  }
}

// A port that accepts connections and never answers.
class MuteListener {
 public:
  MuteListener() : listener_(listen_on(0).value()), thread_([this] { accept_all(); }) {}
  ~MuteListener() {
    ::shutdown(listener_.descriptor, SHUT_RDWR);
    thread_.join();
    for (const int connection : connections_) ::close(connection);
    ::close(listener_.descriptor);
  }
  MuteListener(const MuteListener&) = delete;
  MuteListener& operator=(const MuteListener&) = delete;

  int port() const { return listener_.port; }
  int accepted() const { return accepted_; }

 private:
  void accept_all() {
    for (int connection = 0; (connection = ::accept(listener_.descriptor, nullptr, nullptr)) >= 0; ++accepted_)
      connections_.push_back(connection);
  }

  const Listener listener_;
  std::vector<int> connections_;
  std::atomic<int> accepted_ = 0;
  std::thread thread_;
};

// Both wait for a port that never answers. Ranks that regroup must not wait for the end of a blocking call.
TEST_F(Rendezvous, StopReleasesRepeatableCallFirst) {
  const MuteListener mute;
  RendezvousOptions once = options(1);
  once.master_port = mute.port();
  RendezvousOptions repeatable = once;
  repeatable.is_repeatable = true;
  Attempt first;
  Attempt last;
  std::atomic<bool> has_last_ended = false;
  std::thread slow([&] {
    last.result = rendezvous(once, stop_, clock_);
    has_last_ended = true;
  });
  std::thread quick([&] { first.result = rendezvous(repeatable, stop_, clock_); });
  // Each probes the port, and then connects the store.
  EXPECT_TRUE(test::eventually([&] { return mute.accepted() >= 4; }));
  stop_->raise(SIGTERM);
  quick.join();
  EXPECT_FALSE(has_last_ended);
  slow.join();
  ASSERT_FALSE(*first.result);
  EXPECT_EQ(first.error().code, ExitCode::kTempFail);
  EXPECT_THAT(first.error().message, HasSubstr("interrupted by signal 15"));
}

// Runs a real rank process, because an abandoned call stays until the process exits.
test::TrainerOptions rank_1_at(int port, const std::string& timeout_seconds) {
  return {.config = "task: tiny\nsteps: 1\ndistributed: {rendezvous_timeout_seconds: " + timeout_seconds + "}",
          .arguments = {},
          .environment = {{"RANK", "1"},
                          {"WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(port)}},
          .directory = {}};
}

// The signal ends the rank within seconds, with one line that states the condition it waited for.
void expect_interrupted(test::TrainerRanks& ranks, const std::string& sentence) {
  constexpr double kMaxSeconds = 10;  // two on an idle machine
  const auto begin = std::chrono::steady_clock::now();
  ranks.rank(0).signal(SIGTERM);
  EXPECT_EQ(ranks.rank(0).wait(), 75);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(kMaxSeconds));
  EXPECT_EQ(ranks.last_word(0).message, sentence);
  EXPECT_EQ(ranks.last_word(0).reason, "Interrupted");
  const nlohmann::json line = ranks.log_line(0, sentence);
  ASSERT_FALSE(line.empty()) << ranks.rank(0).err();
  EXPECT_EQ(line["level"], "warn");
  EXPECT_EQ(line["rank"], 1);
  EXPECT_EQ(line["exit_code"], 75);
  EXPECT_THAT(ranks.rank(0).err(), Not(HasSubstr("frame #")));
}

TEST(MuteMaster, SignalEndsRank) {
  const MuteListener mute;
  test::TrainerRanks ranks(1, rank_1_at(mute.port(), "300"));
  // The first connection probes the port, and the second is that of the store.
  ASSERT_TRUE(test::eventually([&] { return mute.accepted() >= 2; }));
  expect_interrupted(ranks, "rendezvous: interrupted by signal 15 while rank 1 waited for rank 0 at 127.0.0.1:" +
                                std::to_string(mute.port()) + ": no response");
}

TEST(AbsentMaster, SignalEndsRank) {
  const PortReservation free = test::reserve_ports();
  test::TrainerRanks ranks(1, rank_1_at(free.first(), "300"));
  ASSERT_TRUE(test::eventually([&] { return !ranks.log_line(0, "rendezvous: still trying to reach rank 0").empty(); }));
  expect_interrupted(ranks, "rendezvous: interrupted by signal 15 while rank 1 waited for rank 0 at 127.0.0.1:" +
                                std::to_string(free.first()) + ": Connection refused");
}

TEST(AbsentRank, SignalEndsRankThatWaits) {
  const PortReservation free = test::reserve_ports();
  test::TrainerOptions waiting = rank_1_at(free.first(), "300");
  waiting.environment["WORLD_SIZE"] = "3";
  test::TrainerOptions first = waiting;
  first.environment["RANK"] = "0";
  test::TrainerRanks rank_0(1, first);
  test::TrainerRanks rank_1(1, waiting);
  // Rank 1 logs this only after it has joined.
  ASSERT_TRUE(test::eventually([&] { return !rank_1.log_line(0, "rendezvous: waiting for ranks").empty(); }));
  expect_interrupted(rank_1, "rendezvous: interrupted by signal 15 while rank 1 waited for rank 0 at 127.0.0.1:" +
                                 std::to_string(free.first()) + ": 2 of 3 ranks had arrived");
  EXPECT_EQ(rank_0.rank(0).wait(), 75) << "the others read the reason of rank 1";
}

TEST(MuteMaster, DeadlineEndsRankWithOneLine) {
  const MuteListener mute;
  test::TrainerRanks ranks(1, rank_1_at(mute.port(), "2"));
  EXPECT_EQ(ranks.rank(0).wait(), 75);
  EXPECT_THAT(ranks.last_word(0).message,
              AllOf(HasSubstr("could not be reached within 2 s"), HasSubstr("does not respond as a TCPStore")));
  EXPECT_THAT(test::lines(ranks.rank(0).err()), testing::SizeIs(1)) << ranks.rank(0).err();
}

// The function that LibTorch's libraries are bound to. 127.0.0.1 has a name on every host.
TEST(Addresses, AreNotLookedUpByLibtorch) {
  const auto bound = reinterpret_cast<decltype(&getnameinfo)>(::dlsym(RTLD_DEFAULT, "getnameinfo"));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(29500);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  ASSERT_EQ(bound(reinterpret_cast<const sockaddr*>(&address), sizeof address, host.data(), host.size(), service.data(),
                  service.size(), NI_NUMERICSERV),
            0);
  EXPECT_STREQ(host.data(), "127.0.0.1");
  EXPECT_STREQ(service.data(), "29500");
}

TEST(Addresses, PrefersAddressSeenByOtherNodes) {
  // Two nodes: the master's name is 127.0.1.1 in its /etc/hosts. Its local rank arrived over that address, and the rank
  // of the other node did not.
  const std::vector<Arrival> arrivals = {{"127.0.0.1", "127.0.1.1"}, {"10.0.0.2", "10.0.0.1"}};
  EXPECT_EQ(master_address_from(arrivals), "10.0.0.1");
  EXPECT_EQ(own_address_from(arrivals[0], "10.0.0.1"), "10.0.0.1") << "it shares the master's host";
  EXPECT_EQ(own_address_from(arrivals[1], "10.0.0.1"), "10.0.0.2");
}

TEST(Addresses, UsesLoopbackOnSingleHost) {
  const std::vector<Arrival> four = {{"127.0.0.1", "127.0.0.1"}};
  EXPECT_EQ(master_address_from(four), "127.0.0.1");
  EXPECT_EQ(own_address_from(four[0], "127.0.0.1"), "127.0.0.1");
  const std::vector<Arrival> six = {{"::1", "::1"}};
  EXPECT_EQ(master_address_from(six), "::1");
  EXPECT_EQ(own_address_from(six[0], "::1"), "::1");
}

TEST(Addresses, RecognizesLoopback) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback(address)) << address;
  for (const char* address : {"10.0.0.1", "fd00::1", "128.0.0.1"}) EXPECT_FALSE(is_loopback(address)) << address;
}

}  // namespace
}  // namespace oarlock
