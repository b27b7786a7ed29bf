#include "cli/launch/launcher_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>
#include <utility>

#include "cli/launch/polling.h"
#include "common/contract.h"
#include "common/port_socket.h"

namespace oarlock::launch {
namespace {

constexpr auto kHelloTimeout = std::chrono::seconds(5);
constexpr int kSilencesPerLease = 2;  // a launcher is silent after this part of its lease, as ten reports are missing
constexpr auto kAcceptDelay = std::chrono::milliseconds(200);  // after a lack of descriptors or memory
constexpr size_t kMaxUnknownPeers = 64;                        // connections that are not authenticated
constexpr int kMaxAccepts = 64;  // connections that are accepted before the launcher continues with its other work

}  // namespace

// Listens on all addresses, IPv6 and IPv4 if the kernel supports both.
Result<void> LauncherServer::listen() {
  PortSocket listener;
  if (const int error = listen_on_port(options_.port, SOMAXCONN, listener); error != 0) {
    return fail(ExitCode::kUnavailable,
                fmt::format("the coordinator of restarts cannot listen on port {} (MASTER_PORT + {}): {}; choose "
                            "another --master-port on all nodes",
                            options_.port, kRegroupPortOffset, std::generic_category().message(error)));
  }
  listener_ = std::move(listener.socket);
  ::fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
  return {};
}

std::vector<recovery::NodeReport> LauncherServer::handle(const std::vector<pollfd>& ready, SteadyTime now) {
  Reports reports;
  for (Peer& peer : peers_) {
    if (!is_ready(peer.channel.fd(), ready)) continue;
    peer.channel.flush();
    read_peer(peer, now, reports);
  }
  if (is_ready(listener_.get(), ready)) accept_peers(now, reports);
  return reports;
}

std::vector<recovery::NodeReport> LauncherServer::time_passed(SteadyTime now) {
  Reports reports;
  peers_.remove_if([now](const Peer& peer) { return !peer.is_authenticated() && peer.deadline <= now; });
  if (accept_at_ && *accept_at_ <= now) accept_peers(now, reports);
  return reports;
}

// The listener stays readable if further connections wait.
void LauncherServer::accept_peers(SteadyTime now, Reports& reports) {
  accept_at_.reset();
  for (int i = 0; i < kMaxAccepts; ++i) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // The connection stays in the queue, so that poll(2) would report it again immediately.
      if (errno != EAGAIN) accept_at_ = now + kAcceptDelay;
      return;
    }
    make_room_for_peer(now, reports);
    set_link_options(socket);
    std::string address = peer_address(socket.get());
    peers_.push_back({.channel = {std::move(socket), kMaxHelloLine},
                      .deadline = now + kHelloTimeout,
                      .address = std::move(address)});
  }
}

// Closes a connection if too many are not authenticated: the oldest one of the hosts that have the most. A launcher
// sends its token immediately, so that hosts that hold connections without a token do not keep it from connecting.
void LauncherServer::make_room_for_peer(SteadyTime now, Reports& reports) {
  for (;;) {
    std::map<std::string, size_t> counts;
    size_t unknown = 0;
    size_t most = 0;
    for (const Peer& peer : peers_) {
      if (peer.is_authenticated()) continue;
      ++unknown;
      most = std::max(most, ++counts[peer.address]);
    }
    if (unknown < kMaxUnknownPeers) return;
    const auto oldest = std::ranges::find_if(
        peers_, [&](const Peer& peer) { return !peer.is_authenticated() && counts.at(peer.address) == most; });
    read_peer(*oldest, now, reports);  // its token may have arrived
    if (oldest->is_authenticated()) continue;
    peers_.erase(oldest);
    return;
  }
}

void LauncherServer::authenticate(Peer& peer, const std::string& line) {
  const bool is_valid = is_valid_hello(line, options_.token);
  peer.state = is_valid ? PeerState::kAdmitted : PeerState::kRefused;
  if (is_valid) peer.channel.set_max_line(recovery::kMaxLineLength);
  peer.channel.send(is_valid ? to_json(coordinator_.order()) : refusal_line());
}

void LauncherServer::read_peer(Peer& peer, SteadyTime now, Reports& reports) {
  while (peer.state != PeerState::kRefused) {
    const std::vector<std::string> lines = peer.channel.read();
    if (lines.empty()) return;
    for (const std::string& line : lines) {
      if (!peer.is_authenticated()) {
        authenticate(peer, line);
        if (peer.state == PeerState::kRefused) break;
        continue;
      }
      const auto report = recovery::node_report_from_json(line);
      const bool is_valid = report && report->node != 0 && report->launcher != 0;
      if (!is_valid || (peer.sender && peer.sender->launcher != report->launcher)) return peer.channel.close();
      peer.sender = Sender{report->node, report->launcher, now};
      reports.push_back(*report);
    }
  }
  peer.channel.discard();
}

void LauncherServer::answer(const recovery::NodeReport& report) {
  if (!options_.lease || coordinator_.is_retired(report.launcher)) return;  // end_retired() follows
  for (Peer& peer : peers_) {
    if (peer.is_of(report.launcher)) peer.channel.send(lease_line(report.sequence));
  }
}

void LauncherServer::send_order() {
  const std::string line = to_json(coordinator_.order());
  for (Peer& peer : peers_) {
    if (peer.state == PeerState::kAdmitted) peer.channel.send(line);
  }
  end_retired();
}

void LauncherServer::close_connections() {
  for (Peer& peer : peers_) peer.channel.close();
}

void LauncherServer::end_retired() {
  for (Peer& peer : peers_) {
    const bool is_retired = peer.sender && coordinator_.is_retired(peer.sender->launcher);
    if (!is_retired || peer.state == PeerState::kRetired) continue;
    peer.state = PeerState::kRetired;
    peer.channel.send(to_json(coordinator_.order_for_retired()));
  }
}

std::vector<LostLauncher> LauncherServer::take_lost(SteadyTime now) {
  std::vector<LostLauncher> lost;
  for (const Peer& peer : peers_) {
    if (!peer.sender) continue;
    const auto& [node, launcher, received_at] = *peer.sender;
    // A launcher that has connected again is not lost with its earlier connection.
    const bool is_connected = std::ranges::any_of(peers_, [&](const Peer& other) { return other.is_of(launcher); });
    const std::optional<SteadyTime> silent = silent_at(peer);
    if (!is_connected) lost.push_back({node, launcher});
    if (silent && *silent <= now) lost.push_back({node, launcher, received_at});
  }
  peers_.remove_if([](const Peer& peer) { return !peer.channel.is_open(); });
  return lost;
}

// Returns when a launcher without reports counts as one without a connection; nothing if it does already, or sends
// none, as a launcher that was requested to stop.
std::optional<SteadyTime> LauncherServer::silent_at(const Peer& peer) const {
  if (!options_.lease || !peer.sender || !peer.channel.is_open()) return std::nullopt;
  const recovery::Coordinator::State& state = coordinator_.state();
  const auto number = static_cast<size_t>(peer.sender->node);
  if (number >= state.nodes.size()) return std::nullopt;
  const auto& node = state.nodes[number];
  if (node.launcher != peer.sender->launcher || !node.connected || node.is_stopping) return std::nullopt;
  return peer.sender->received_at + *options_.lease / kSilencesPerLease;
}

void LauncherServer::add_descriptors(std::vector<pollfd>& out) const {
  if (listener_.open() && !accept_at_) out.push_back({listener_.get(), POLLIN, 0});
  for (const Peer& peer : peers_) add_channel(peer.channel, out);
}

std::optional<SteadyTime> LauncherServer::deadline() const {
  std::optional<SteadyTime> earliest = accept_at_;
  for (const Peer& peer : peers_)
    earliest = earlier(earliest, peer.is_authenticated() ? silent_at(peer) : peer.deadline);
  return earliest;
}

void LauncherServer::finish(std::vector<pollfd>& waiting) {
  for (Peer& peer : peers_) finish_channel(peer.channel, waiting);
}

}  // namespace oarlock::launch
