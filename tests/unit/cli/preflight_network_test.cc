// The server and the measurements of a preflight, in one process, with connections of programs that are no launchers.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/host_lookup.h"
#include "cli/launch/launcher_link.h"
#include "cli/launch/preflight_link.h"
#include "cli/launch/preflight_messages.h"
#include "cli/launch/preflight_server.h"
#include "common/clock.h"
#include "common/port_reservation.h"
#include "common/port_socket.h"
#include "recovery/line_channel.h"

namespace oarlock::launch {
namespace {

using testing::HasSubstr;

const std::string kToken = "secret";

SocketAddress loopback(int port) { return HostLookup("127.0.0.1", port).result()->front(); }

FileDescriptor connect_to(int port) {
  FileDescriptor socket = begin_connect(loopback(port));
  pollfd writable{socket.get(), POLLOUT, 0};
  EXPECT_EQ(::poll(&writable, 1, 30'000), 1);
  EXPECT_EQ(connect_error(socket.get()), 0);
  return socket;
}

// Returns the next lines of a channel, or none if it is closed before.
std::vector<std::string> next_lines(recovery::LineChannel& channel) {
  while (channel.is_open()) {
    pollfd readable{channel.fd(), POLLIN, 0};
    if (::poll(&readable, 1, 30'000) != 1) return {"nothing within 30 s"};
    if (std::vector<std::string> lines = channel.read(); !lines.empty()) return lines;
  }
  return {};
}

class PreflightGroupOfTwo : public testing::Test {
 protected:
  PreflightGroupOfTwo() {
    auto started = PreflightServer::start({.port = ports_.first(),
                                           .token = kToken,
                                           .nodes = 2,
                                           .limits = {.min_mbps = 1000},
                                           .join_until = RealClock().steady() + std::chrono::minutes(5)});
    EXPECT_TRUE(started) << started.error().message;
    server_ = *std::move(started);
  }

  // Connects as the launcher of a node, up to the request for its report.
  recovery::LineChannel& launcher() {
    recovery::LineChannel& out = launchers_.emplace_back(connect_to(ports_.first()), kMaxPreflightLine);
    out.send(hello_line(kToken));
    EXPECT_EQ(next_lines(out), std::vector<std::string>{clock_request()});
    return out;
  }

  static void join(recovery::LineChannel& launcher, int node) {
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(RealClock().now().time_since_epoch());
    launcher.send(to_json(PreflightJoin{.node = node, .port = 1, .host = "h", .time = time, .failures = {}}));
  }

  // Follows one node until the outcome, and returns the number of rounds. `value` is the result of each round.
  static int follow(recovery::LineChannel& launcher, const std::function<double(const PreflightRound&)>& value,
                    std::optional<PreflightOutcome>& outcome) {
    int rounds = 0;
    for (std::vector<std::string> lines = next_lines(launcher); !lines.empty(); lines = next_lines(launcher)) {
      for (const std::string& line : lines) {
        const std::optional<PreflightRound> round = preflight_round_from_json(line);
        if (!round) {
          outcome = preflight_outcome_from_json(line);
          return rounds;
        }
        launcher.send(to_json(PreflightResult{.round = round->round, .value = value(*round)}));
        ++rounds;
      }
    }
    return rounds;
  }

  PortReservation ports_ = PortReservation::make(1).value();
  std::list<recovery::LineChannel> launchers_;
  std::unique_ptr<PreflightServer> server_;
};

TEST_F(PreflightGroupOfTwo, LauncherConnectsDespiteManyConnectionsWithoutToken) {
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_to(ports_.first()));
  launcher();
}

TEST_F(PreflightGroupOfTwo, RoundsAreRepeatedOnceAndTheBetterValueCounts) {
  recovery::LineChannel& first = launcher();
  recovery::LineChannel& second = launcher();
  join(first, 0);
  join(second, 1);
  const auto disturbed = [](const PreflightRound& round) {
    return round.is_latency ? 0.1 : round.round < 2 ? 90 : 9000;
  };
  std::optional<PreflightOutcome> outcome;
  std::optional<PreflightOutcome> other_outcome;
  auto other = std::async(std::launch::async, [&] { return follow(second, disturbed, other_outcome); });
  EXPECT_EQ(follow(first, disturbed, outcome), 4) << "two rounds, twice";
  EXPECT_EQ(other.get(), 4);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_code, 0);
  EXPECT_THAT(outcome->message, HasSubstr("the slowest has 9000 Mbit/s"));
  EXPECT_EQ(other_outcome, PreflightOutcome());
}

// Its pod reports its own failure.
TEST_F(PreflightGroupOfTwo, LauncherThatEndsIsNotSilent) {
  recovery::LineChannel& first = launcher();
  recovery::LineChannel& second = launcher();
  join(first, 0);
  join(second, 1);
  std::optional<PreflightOutcome> outcome;
  const auto end_of_second = [&](const PreflightRound&) {  // both have joined
    second.close();
    return 1;
  };
  follow(first, end_of_second, outcome);
  EXPECT_EQ(outcome, (PreflightOutcome{76, -1, "node rank 1: its launcher has closed the connection"}));
}

// ---- Measurements ----

TEST(PreflightLink, ConnectionsWithoutHelloDoNotDisturb) {
  PortSocket listeners[2];
  for (PortSocket& listener : listeners) {
    ASSERT_EQ(listen_on_port(0, SOMAXCONN, listener), 0);
    ::fcntl(listener.socket.get(), F_SETFL, O_NONBLOCK);
  }
  const auto measure = [&](int node, bool is_latency) {
    const RealClock clock;
    return measure_link(
        {.round = {.round = 3, .is_latency = is_latency, .host = "", .port = 0},
         .to = loopback(listeners[1 - node].port),
         .token = kToken,
         .listener = listeners[node].socket.get()},
        [&](std::vector<pollfd>& fds, SteadyTime until) {
          ::poll(fds.data(), fds.size(), poll_timeout(until, clock.steady()));
          return true;
        },
        clock);
  };
  for (const bool is_latency : {true, false}) {
    SCOPED_TRACE(is_latency);
    std::vector<FileDescriptor> strangers;
    for (int i = 0; i < 20; ++i) strangers.push_back(connect_to(listeners[0].port));
    auto other = std::async(std::launch::async, [&] { return measure(1, is_latency); });
    EXPECT_TRUE(measure(0, is_latency));
    EXPECT_TRUE(other.get());
  }
}

}  // namespace
}  // namespace oarlock::launch
