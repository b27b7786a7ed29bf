#include "cli/launch/preflight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/host_lookup.h"
#include "cli/launch/launcher_link.h"
#include "cli/launch/polling.h"
#include "cli/launch/preflight_link.h"
#include "cli/launch/preflight_messages.h"
#include "cli/launch/preflight_server.h"
#include "common/contract.h"
#include "common/host_name.h"
#include "common/number.h"
#include "common/port_socket.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "recovery/line_channel.h"

namespace oarlock::launch {
namespace {

constexpr auto kRetryDelay = std::chrono::milliseconds(200);
constexpr auto kPreflightConnectTimeout = std::chrono::seconds(2);
// After the time in which all nodes must have joined: the verdict, or up to twelve rounds of measurement, takes less.
constexpr auto kVerdictTime = std::chrono::seconds(120);
constexpr int kMaxDevices = 1024;
constexpr int kMaxMib = 1 << 24;

bool is_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT; }

// Returns a signal that stops the launcher, if it has arrived.
std::optional<int> read_stop(const SignalSource& signals) {
  const std::vector<int> arrived = signals.read_and_suspend();
  const auto stop = std::ranges::find_if(arrived, is_stop);
  return stop == arrived.end() ? std::nullopt : std::optional(*stop);
}

PreflightOutcome stopped_by(int signal) {
  return {128 + signal, -1, fmt::format("stopped by {}", signal_name(signal))};
}

bool is_positive(const std::optional<double>& number) { return number && std::isfinite(*number) && *number > 0; }

// The launcher of one node in a group of several.
class PreflightMember {
 public:
  PreflightMember(const PreflightOptions& options, std::vector<CheckFailure> failures, const SignalSource& signals,
                  const Clock& clock)
      : options_(options), failures_(std::move(failures)), signals_(signals), clock_(clock) {}

  Result<PreflightOutcome> run() {
    const auto timeout = options_.settings.timeout;
    const SteadyTime join_until = clock_.steady() + timeout;
    if (const int error = listen_on_port(0, SOMAXCONN, listener_); error != 0)
      return fail_errno(error, "the preflight cannot listen on any port");
    ::fcntl(listener_.socket.get(), F_SETFL, O_NONBLOCK);
    const int port = options_.master_port + kPreflightPortOffset;
    std::unique_ptr<PreflightServer> server;
    if (options_.node_rank == 0) {
      ASSIGN_OR_RETURN(server, PreflightServer::start({.port = port,
                                                       .token = options_.token,
                                                       .nodes = options_.nodes,
                                                       .limits = options_.settings.limits,
                                                       .join_until = join_until}));
    }
    std::string host = options_.master_addr;
    for (bool is_ipv4 = true; !signal_ && clock_.steady() < join_until; is_ipv4 = !is_ipv4) {
      if (server) host = is_ipv4 ? "127.0.0.1" : "::1";  // a cluster may have IPv6 only
      // Node rank 0 may have started later by up to the same time.
      if (connect(host, port, join_until)) follow(clock_.steady() + timeout + kVerdictTime);
      if (has_joined_ || outcome_) break;
      std::vector<pollfd> none;
      wait(none, clock_.steady() + kRetryDelay);
    }
    channel_.reset();  // the server waits for its end
    if (server && outcome_) server->finish();
    if (signal_) return stopped_by(*signal_);
    if (outcome_) return *outcome_;
    return PreflightOutcome{to_int(ExitCode::kPeerLost), -1,
                            fmt::format("no {} the launcher of node rank 0 at {}",
                                        has_joined_ ? "verdict from" : "connection to", endpoint(host, port))};
  }

 private:
  // See PreflightWait.
  bool wait(std::vector<pollfd>& fds, SteadyTime until) {
    fds.push_back({signals_.fd(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), poll_timeout(until, clock_.steady()));
    if (!signal_) signal_ = read_stop(signals_);
    return !signal_;
  }

  std::optional<SocketAddress> look_up(const std::string& host, int port, SteadyTime until) {
    const HostLookup lookup(host, port);
    while (!lookup.result() && clock_.steady() < until) {
      std::vector<pollfd> fds = {{lookup.fd(), POLLIN, 0}};
      if (!wait(fds, until)) return std::nullopt;
    }
    const auto found = lookup.result();
    if (!found || found->empty()) return std::nullopt;
    return (*found)[attempts_++ % found->size()];
  }

  // Returns whether there is a connection to the launcher of node rank 0. A resolver may need much longer than a
  // connection.
  bool connect(const std::string& host, int port, SteadyTime join_until) {
    const std::optional<SocketAddress> to = look_up(host, port, join_until);
    if (!to) return false;
    const SteadyTime until = std::min(join_until, clock_.steady() + kPreflightConnectTimeout);
    FileDescriptor socket = begin_connect(*to);
    for (bool is_connected = false; !is_connected;) {
      std::vector<pollfd> fds = {{socket.get(), POLLOUT, 0}};
      if (!socket.open() || !wait(fds, until) || clock_.steady() >= until) return false;
      if (connect_error(socket.get()) != 0) return false;
      is_connected = is_ready(socket.get(), fds);
    }
    channel_.emplace(std::move(socket), kMaxPreflightLine);
    channel_->send(hello_line(options_.token));
    return true;
  }

  // Follows the orders of node rank 0 until the outcome, or the end of the connection.
  void follow(SteadyTime until) {
    while (channel_->is_open() && !outcome_ && clock_.steady() < until) {
      std::vector<pollfd> fds;
      add_channel(*channel_, fds);
      if (!wait(fds, until)) return;
      channel_->flush();
      for (const std::string& line : channel_->read()) receive(line);
    }
  }

  void receive(const std::string& line) {
    if (is_clock_request(line)) {
      const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now().time_since_epoch());
      channel_->send(to_json(PreflightJoin{.node = options_.node_rank,
                                           .port = listener_.port,
                                           .host = host_name(),
                                           .time = time,
                                           .failures = failures_}));
      has_joined_ = true;
    } else if (const auto round = preflight_round_from_json(line)) {
      channel_->send(to_json(PreflightResult{.round = round->round, .value = measure(*round)}));
    } else {
      outcome_ = preflight_outcome_from_json(line);
    }
  }

  std::optional<double> measure(const PreflightRound& round) {
    const std::string host = round.host.empty() ? peer_address(channel_->fd()) : round.host;
    const std::optional<SocketAddress> to = look_up(host, round.port, clock_.steady() + kPreflightConnectTimeout);
    if (!to) return std::nullopt;
    return measure_link(
        {.round = round, .to = *to, .token = options_.token, .listener = listener_.socket.get()},
        [this](std::vector<pollfd>& fds, SteadyTime until) { return wait(fds, until); }, clock_);
  }

  const PreflightOptions& options_;
  const std::vector<CheckFailure> failures_;
  const SignalSource& signals_;
  const Clock& clock_;
  PortSocket listener_;  // of the measurements
  std::optional<recovery::LineChannel> channel_;
  size_t attempts_ = 0;      // each tries another address of the host
  bool has_joined_ = false;  // then the end of the connection is final
  std::optional<PreflightOutcome> outcome_;
  std::optional<int> signal_;
};

}  // namespace

Result<PreflightSettings> parse_preflight(std::string_view text) {
  PreflightSettings out;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t sign = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, sign);
    const std::string_view value = item.substr(std::min(sign + 1, item.size()));
    const std::optional<double> number = parse_double(value);
    const std::optional<int> count = parse_integer<int>(value);
    if (name == "timeout" && count && *count > 0) {
      out.timeout = std::chrono::seconds(*count);
    } else if (name == "devices" && count && *count >= 0 && *count <= kMaxDevices) {
      out.devices = *count;
    } else if (name == "shm" && count && *count >= 0 && *count <= kMaxMib) {
      out.min_shared_memory_mib = *count;
    } else if (name == "bandwidth" && is_positive(number)) {
      out.limits.min_mbps = number;
    } else if (name == "latency" && is_positive(number)) {
      out.limits.max_milliseconds = number;
    } else {
      return fail(ExitCode::kUsage,
                  fmt::format("'{}' is not a setting of the preflight; they are timeout=SECONDS, devices=N, "
                              "bandwidth=MBPS, latency=MILLISECONDS and shm=MIB, separated by commas",
                              shortened(item)));
    }
  }
  return out;
}

Result<PreflightOutcome> run_preflight(const PreflightOptions& options, const SignalSource& signals,
                                       const Clock& clock) {
  NodeChecks checks = options.checks;
  checks.devices = options.settings.devices;
  checks.min_shared_memory = options.settings.min_shared_memory_mib << 20;
  checks.file_name = fmt::format(".oarlock-preflight-{}-{}-{}", host_name(), options.master_port, options.node_rank);
  std::vector<CheckFailure> failures = check_node(checks);
  if (const std::optional<int> signal = read_stop(signals)) return stopped_by(*signal);
  if (options.nodes > 1 && !options.is_local_only)
    return PreflightMember(options, std::move(failures), signals, clock).run();
  PreflightVerdict verdict =
      judge_preflight({NodeHealth{.host = host_name(), .failures = std::move(failures)}}, {}, {});
  for (FailedNode& node : verdict.failed) node.node = options.node_rank;
  return outcome_of(verdict, options.node_rank);
}

}  // namespace oarlock::launch
