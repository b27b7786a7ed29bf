// The connections between launchers: what happens when names, ports or descriptors are missing.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "cli/launch/recovery.h"
#include "common/port_reservation.h"

namespace oarlock::launch {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::SizeIs;

// Node rank `node` of two, with one rank each.
RecoveryOptions options_of(int node, int port) {
  RecoveryOptions options;
  options.agent.node = node;
  options.agent.first_rank = node;
  options.coordinator.nodes = 2;
  options.coordinator.max_restarts = 1;
  options.link.host = "node0.test";
  options.link.port = port;
  options.link.token = "secret";
  return options;
}

SocketAddress loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  SocketAddress out;
  std::memcpy(&out.address, &address, sizeof address);
  out.length = sizeof address;
  return out;
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

// Waits for a descriptor or the deadline, as the launcher's loop does.
RecoveryRequests wait_and_handle(Recovery& recovery) {
  std::vector<pollfd> fds = recovery.descriptors();
  ::poll(fds.data(), fds.size(), 20);
  const SteadyTime now = std::chrono::steady_clock::now();
  RecoveryRequests requests = recovery.handle(fds, now);
  recovery.time_passed(now);
  return requests;
}

TEST(RecoveryIo, BlockedLookupDoesNotBlockTheLauncher) {
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_open = false;
    void open() {
      const std::scoped_lock lock(mutex);
      is_open = true;
      changed.notify_all();
    }
  };
  const auto gate = std::make_shared<Gate>();
  RecoveryOptions options = options_of(1, 1);
  options.link.lookup = [gate](const std::string&, int) {
    std::unique_lock lock(gate->mutex);
    gate->changed.wait_for(lock, seconds(60), [&] { return gate->is_open; });
    return std::vector<SocketAddress>{};
  };
  const auto recovery = Recovery::make(std::move(options)).value();
  const SteadyTime now{};
  recovery->start(now);
  EXPECT_THAT(recovery->descriptors(), SizeIs(1)) << "of the lookup, which must still be in progress";
  ASSERT_TRUE(recovery->deadline());
  const RecoveryRequests requests = recovery->time_passed(*recovery->deadline());
  ASSERT_TRUE(requests.ended);
  EXPECT_THAT(requests.ended->reason, HasSubstr("no connection to the launcher of node rank 0 at node0.test:1"));
  gate->open();
}

TEST(RecoveryIo, TriesEachAddressOfTheCoordinator) {
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  SocketAddress bound = loopback(0);
  auto* address = reinterpret_cast<sockaddr*>(&bound.address);
  ASSERT_EQ(::bind(listener.get(), address, bound.length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), address, &bound.length), 0);
  const PortReservation closed = PortReservation::make(1).value();
  RecoveryOptions options = options_of(1, 1);
  options.link.lookup = [&](const std::string& host, int) {
    EXPECT_EQ(host, "node0.test");
    return std::vector<SocketAddress>{loopback(closed.first()), bound};
  };
  const auto recovery = Recovery::make(std::move(options)).value();
  recovery->start(std::chrono::steady_clock::now());
  FileDescriptor peer;
  EXPECT_TRUE(eventually([&] {
    wait_and_handle(*recovery);
    peer = FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return peer.open();
  }));
}

// A launcher and the coordinator of the other node, at a time that the test sets.
class Lease : public testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kLease{10'000};

  void SetUp() override {
    for (const int node : {0, 1}) {
      RecoveryOptions options = options_of(node, port_.first());
      options.agent.policy = recovery::RestartPolicy::kRank;
      options.agent.launcher = 101 + static_cast<uint64_t>(node);
      options.coordinator.min_nodes = 1;
      options.link.lease = kLease;
      options.link.lookup = [this](const std::string&, int) {
        return std::vector<SocketAddress>{loopback(port_.first())};
      };
      launchers_.push_back(Recovery::make(std::move(options)).value());
      launchers_.back()->start(now_);
    }
    ASSERT_TRUE(eventually([&] {
      exchange(0);
      exchange(1);
      return launcher().deadline() == now_ + kLease / 20;
    })) << "the launcher sends its next report then";
    settle();
  }

  Recovery& launcher() { return *launchers_[1]; }

  RecoveryRequests exchange(size_t node) {
    std::vector<pollfd> fds = launchers_[node]->descriptors();
    ::poll(fds.data(), fds.size(), 20);
    RecoveryRequests requests = launchers_[node]->handle(fds, now_);
    if (requests.ended) return requests;
    return launchers_[node]->time_passed(now_);
  }
  // Lets the messages arrive.
  void settle() {
    for (int i = 0; i < 3; ++i) {
      exchange(0);
      EXPECT_FALSE(exchange(1).ended);
    }
  }

  SteadyTime now_ = std::chrono::steady_clock::now();
  const PortReservation port_ = PortReservation::make(1).value();
  std::vector<std::unique_ptr<Recovery>> launchers_;
};

TEST_F(Lease, IsRenewedWhileTheCoordinatorAnswers) {
  for (int i = 0; i < 60; ++i) {
    now_ += kLease / 20;
    EXPECT_FALSE(launcher().time_passed(now_).ended);
    settle();
  }
}

TEST_F(Lease, EndsWithoutAnswers) {
  now_ += kLease - std::chrono::milliseconds(1);
  EXPECT_FALSE(launcher().time_passed(now_).ended);
  now_ += std::chrono::milliseconds(1);
  const RecoveryRequests requests = launcher().time_passed(now_);
  ASSERT_TRUE(requests.ended);
  EXPECT_FALSE(requests.ended->success);
  EXPECT_TRUE(requests.is_disconnected);
  EXPECT_THAT(requests.ended->reason, HasSubstr("has not answered for 10.0 s"));
}

// The coordinator has answered in time, but this launcher was stopped before it could read that.
TEST_F(Lease, EndsBeforeOldAnswersAreRead) {
  now_ += kLease / 20;
  launcher().time_passed(now_);  // sends a report
  exchange(0);
  exchange(0);
  now_ += kLease;
  std::vector<pollfd> fds = launcher().descriptors();
  ASSERT_GT(::poll(fds.data(), fds.size(), 10'000), 0) << "the answer";
  EXPECT_TRUE(launcher().handle(fds, now_).ended);
}

// ---- Launchers that the coordinator does not admit ---------------------------------------------------------------

class Admission : public testing::Test {
 protected:
  std::unique_ptr<Recovery> launcher(int node, uint64_t id, const std::string& token = "secret") {
    RecoveryOptions options = options_of(node, port_.first());
    options.agent.policy = recovery::RestartPolicy::kRank;
    options.agent.launcher = id;
    options.link.token = token;
    options.link.lookup = [this](const std::string&, int) {
      return std::vector<SocketAddress>{loopback(port_.first())};
    };
    std::unique_ptr<Recovery> recovery = Recovery::make(std::move(options)).value();
    recovery->start(std::chrono::steady_clock::now());
    return recovery;
  }

  const PortReservation port_ = PortReservation::make(1).value();
};

TEST_F(Admission, ReplacedLauncherEnds) {
  const auto coordinator = launcher(0, 101);
  const auto first = launcher(1, 102);
  const auto connect = [&](Recovery& other) {
    return eventually([&] {
      wait_and_handle(*coordinator);
      wait_and_handle(other);
      return other.descriptors().size() == 1 && coordinator->descriptors().size() > 1;
    });
  };
  ASSERT_TRUE(connect(*first));
  const auto second = launcher(1, 103);
  RecoveryRequests requests;
  EXPECT_TRUE(eventually([&] {
    wait_and_handle(*coordinator);
    wait_and_handle(*second);
    if (!requests.ended) requests = wait_and_handle(*first);
    return requests.ended.has_value();
  }));
  EXPECT_TRUE(requests.is_disconnected);
  EXPECT_THAT(requests.ended->reason, HasSubstr("another launcher has taken the place of this one"));
}

TEST_F(Admission, AnotherTokenIsReported) {
  const auto coordinator = launcher(0, 101);
  const auto other = launcher(1, 102, "another");
  std::vector<std::string> messages;
  EXPECT_TRUE(eventually([&] {
    wait_and_handle(*coordinator);
    const std::vector<std::string> next = wait_and_handle(*other).messages;
    messages.insert(messages.end(), next.begin(), next.end());
    return !messages.empty();
  }));
  const std::string expected = "does not accept the value of OARLOCK_REGROUP_TOKEN; set the same one on all nodes";
  EXPECT_THAT(messages.at(0), HasSubstr(expected));
  const RecoveryRequests requests = other->time_passed(std::chrono::steady_clock::now() + std::chrono::hours(1));
  ASSERT_TRUE(requests.ended);
  EXPECT_THAT(requests.ended->reason, HasSubstr(expected));
}

// From the loopback address 127.0.0.0 + `host`.
FileDescriptor connect_to(int port, uint32_t host = 1) {
  FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl((127U << 24) + host);
  EXPECT_EQ(::bind(client.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  const SocketAddress address = loopback(port);
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length), 0);
  return client;
}

void say_hello(const FileDescriptor& launcher) {
  const std::string hello = R"({"regroup":1,"token":"secret"})"
                            "\n";
  ASSERT_EQ(::send(launcher.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
}

void expect_order(Recovery& recovery, const FileDescriptor& launcher) {
  std::string answer(1024, '\0');
  ssize_t got = -1;
  EXPECT_TRUE(eventually([&] {
    wait_and_handle(recovery);
    got = ::recv(launcher.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    return got >= 0;
  }));
  EXPECT_GT(got, 0) << "the order of the coordinator, instead of the end of the connection";
}

TEST(RecoveryIo, ConnectionsWithoutATokenDoNotKeepALauncherOut) {
  const PortReservation port = PortReservation::make(1).value();
  const auto recovery = Recovery::make(options_of(0, port.first())).value();
  recovery->start(std::chrono::steady_clock::now());
  constexpr size_t kConnections = 64;
  std::vector<FileDescriptor> idle;
  for (size_t i = 0; i < kConnections; ++i) idle.push_back(connect_to(port.first()));
  ASSERT_TRUE(eventually([&] {
    wait_and_handle(*recovery);
    return recovery->descriptors().size() == kConnections + 1;
  }));
  const FileDescriptor launcher = connect_to(port.first());
  say_hello(launcher);
  expect_order(*recovery, launcher);
}

// The launcher has an address below those of the others, and as many connections as each of them.
TEST(RecoveryIo, ConnectionsOfManyHostsDoNotKeepALauncherOut) {
  const PortReservation port = PortReservation::make(1).value();
  const auto recovery = Recovery::make(options_of(0, port.first())).value();
  recovery->start(std::chrono::steady_clock::now());
  constexpr uint32_t kHosts = 200;
  constexpr uint32_t kAllowed = 64;
  std::vector<FileDescriptor> idle;
  const auto fill = [&](uint32_t first, uint32_t last) {
    for (uint32_t host = first; host < last; ++host) idle.push_back(connect_to(port.first(), 100 + host));
    EXPECT_TRUE(eventually([&] {
      wait_and_handle(*recovery);
      return recovery->descriptors().size() >= kAllowed + 1;
    }));
  };
  fill(0, kHosts / 2);
  const FileDescriptor launcher = connect_to(port.first(), 2);
  say_hello(launcher);
  fill(kHosts / 2, kHosts);
  expect_order(*recovery, launcher);
}

TEST(RecoveryIo, WaitsAfterLackOfDescriptors) {
  const PortReservation port = PortReservation::make(1).value();
  const auto recovery = Recovery::make(options_of(0, port.first())).value();
  recovery->start(std::chrono::steady_clock::now());
  ASSERT_THAT(recovery->descriptors(), SizeIs(1)) << "of the listener";
  const FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = loopback(port.first());
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length), 0);

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = ::dup(client.get());
  ::close(lowest_free);
  const rlimit exhausted{static_cast<rlim_t>(lowest_free), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &exhausted), 0);
  const bool has_stopped = eventually([&] {
    wait_and_handle(*recovery);
    return recovery->descriptors().empty();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(has_stopped) << "the listener is ready, and must not be polled";
  ASSERT_TRUE(recovery->deadline());
  EXPECT_LE(*recovery->deadline(), std::chrono::steady_clock::now() + seconds(1));
  EXPECT_TRUE(eventually([&] {
    wait_and_handle(*recovery);
    return recovery->descriptors().size() == 2;
  })) << "the listener and the connection";
}

}  // namespace
}  // namespace oarlock::launch
