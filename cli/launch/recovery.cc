#include "cli/launch/recovery.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "common/contract.h"
#include "common/json_access.h"
#include "common/port_socket.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

using recovery::NodeAgent;
using recovery::Order;
using recovery::OrderKind;
using recovery::RankCommand;

constexpr size_t kMaxHelloLine = 1024;  // bytes, before the peer is authenticated
constexpr auto kHelloTimeout = std::chrono::seconds(5);
constexpr auto kReconnectDelay = std::chrono::milliseconds(200);
constexpr auto kConnectTimeout = std::chrono::seconds(2);
constexpr int kRenewalsPerLease = 20;
constexpr int kSilencesPerLease = 2;   // a launcher is silent after this part of its lease, as ten reports are missing
constexpr size_t kMaxUnanswered = 64;  // reports
constexpr auto kAcceptDelay = std::chrono::milliseconds(200);  // after a lack of descriptors or memory
constexpr size_t kMaxUnknownPeers = 64;                        // connections that are not authenticated
constexpr int kMaxAccepts = 64;  // connections that are accepted before the launcher continues with its other work
constexpr unsigned kUnacknowledgedTimeout = 60'000;  // ms, until a connection to a node without power is closed

void append(std::vector<int>& to, const std::vector<int>& from) { to.insert(to.end(), from.begin(), from.end()); }

std::optional<SteadyTime> earlier(std::optional<SteadyTime> a, std::optional<SteadyTime> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// Listens on all addresses, IPv6 and IPv4 if the kernel supports both.
Result<FileDescriptor> listen_for_launchers(int port) {
  PortSocket listener;
  const int error = listen_on_port(port, SOMAXCONN, listener);
  if (error == 0) {
    ::fcntl(listener.socket.get(), F_SETFL, O_NONBLOCK);
    return std::move(listener.socket);
  }
  return fail(ExitCode::kUnavailable,
              fmt::format("the coordinator of restarts cannot listen on port {} (MASTER_PORT + {}): {}; choose another "
                          "--master-port on all nodes",
                          port, kRegroupPortOffset, std::generic_category().message(error)));
}

// Sets the options of a connection between launchers. The other node may disappear without closing it.
void set_options(const FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedTimeout, sizeof kUnacknowledgedTimeout);
}

FileDescriptor begin_connect(const SocketAddress& to) {
  FileDescriptor socket(::socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open()) return socket;
  set_options(socket);
  const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
  if (::connect(socket.get(), address, to.length) != 0 && errno != EINPROGRESS) socket.close();
  return socket;
}

// Returns the numeric address of the other end of a connected socket; empty if it is not known.
std::string peer_address(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  const int failed = ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text.data(), text.size(), nullptr, 0,
                                   NI_NUMERICHOST);
  return failed != 0 ? "" : text.data();
}

std::string hello_line(const std::string& token) { return nlohmann::json{{"regroup", 1}, {"token", token}}.dump(); }

// Returns whether the first line of a connection proves that the peer knows the token.
bool is_valid_hello(const std::string& line, const std::string& token) {
  constexpr int kMaxDepth = 2;
  const nlohmann::json json = parse_untrusted_json(line, kMaxHelloLine, kMaxDepth);
  return !token.empty() && recovery::is_equal_secret(text_at(json, "token"), token);
}

std::string describe_refusal(const std::string& where) {
  return fmt::format("the launcher of node rank 0 at {} does not accept the value of {}; set the same one on all nodes",
                     where, kEnvRegroupToken);
}

// The coordinator's answer to a first line with another token.
constexpr char kRefusedKey[] = "refused";

std::string refusal_line() { return nlohmann::json{{kRefusedKey, "token"}}.dump(); }

bool is_refusal(const std::string& line) {
  constexpr size_t kMaxRefusalLine = 64;
  const nlohmann::json json = parse_untrusted_json(line, kMaxRefusalLine, 2);
  return line.size() <= kMaxRefusalLine && json.is_object() && json.contains(kRefusedKey);
}

// The coordinator's answer to a report, which renews the lease of the launcher that has sent it.
constexpr char kLeaseKey[] = "lease";

std::string lease_line(uint64_t sequence) { return nlohmann::json{{kLeaseKey, sequence}}.dump(); }

std::optional<uint64_t> lease_from_line(const std::string& line) {
  constexpr size_t kMaxLeaseLine = 64;
  if (line.size() > kMaxLeaseLine) return std::nullopt;
  const nlohmann::json json = parse_untrusted_json(line, kMaxLeaseLine, 2);
  const bool is_lease = json.is_object() && json.size() == 1 && json.contains(kLeaseKey);
  if (!is_lease || !json[kLeaseKey].is_number_unsigned()) return std::nullopt;
  return json[kLeaseKey].get<uint64_t>();
}

}  // namespace

Recovery::Recovery(RecoveryOptions options)
    : options_(std::move(options)), agent_(options_.agent), ranks_(static_cast<size_t>(options_.agent.ranks)) {
  if (options_.agent.node == 0) coordinator_.emplace(options_.coordinator, options_.agent.launcher);
}

Recovery::~Recovery() = default;

Result<std::unique_ptr<Recovery>> Recovery::make(RecoveryOptions options) {
  std::unique_ptr<Recovery> recovery(new Recovery(std::move(options)));
  if (recovery->has_other_nodes() && recovery->coordinator_) {
    ASSIGN_OR_RETURN(recovery->listener_, listen_for_launchers(recovery->options_.coordinator_port));
  }
  return recovery;
}

RecoveryRequests Recovery::start(SteadyTime now) {
  RecoveryRequests requests;
  if (is_remote()) {
    give_up_at_ = now + options_.coordinator.form_timeout;
    look_up_coordinator(now);
  } else {
    act(agent_.received(coordinator_->order()), now, requests);
  }
  act(agent_.start(), now, requests);
  return requests;
}

void Recovery::act(NodeAgent::Actions actions, SteadyTime now, RecoveryRequests& requests) {
  append(requests.kill, actions.kill);
  append(requests.stop, actions.stop);
  append(requests.spawn, actions.spawn);
  for (const NodeAgent::Actions::Send& send : actions.send) {
    std::optional<recovery::LineChannel>& channel = ranks_[static_cast<size_t>(send.rank)];
    if (!channel) continue;
    RankCommand command = send.command;
    // The name may still have the address of a pod that was replaced, in the caches of the cluster's DNS.
    if (command.kind == RankCommand::Kind::kAssign && upstream_ && !is_connecting_) {
      if (std::string address = peer_address(upstream_->fd()); !address.empty())
        command.store_host = std::move(address);
    }
    channel->send(to_json(command));
  }
  if (actions.ended && !requests.ended) {
    requests.ended = actions.ended;
    if (actions.ended->is_replaced) {  // the other launchers belong to the group of another coordinator
      requests.is_disconnected = true;
      for (Peer& peer : peers_) peer.channel.close();
    }
    is_active_ = false;
    RankCommand end;
    end.kind = RankCommand::Kind::kEnd;
    end.reason = actions.ended->reason;
    for (auto& channel : ranks_) {
      if (channel) channel->send(to_json(end));
    }
  }
  if (actions.report) report(now, requests);
}

void Recovery::report(SteadyTime now, RecoveryRequests& requests) {
  const recovery::NodeReport report = agent_.report();
  if (!coordinator_) {
    if (!upstream_ || is_connecting_) return;
    upstream_->send(to_json(report));
    if (!options_.lease) return;
    unanswered_.emplace_back(report.sequence, now);
    if (unanswered_.size() > kMaxUnanswered) unanswered_.pop_front();
    renew_at_ = now + *options_.lease / kRenewalsPerLease;
  } else if (coordinator_->received(report, now)) {
    publish(now, requests);
  }
}

void Recovery::announce_fallback(const Order& order, RecoveryRequests& requests) {
  const bool is_fallback = order.kind == OrderKind::kRun && order.generation > 0 && order.donor < 0;
  if (!is_fallback || options_.agent.policy != recovery::RestartPolicy::kRank || order.generation <= announced_run_)
    return;
  announced_run_ = order.generation;
  requests.messages.push_back(
      fmt::format("no rank has the complete state of a step; restart {} continues from the newest checkpoint, if any",
                  order.generation));
}

void Recovery::announce_size(const Order& order, RecoveryRequests& requests) {
  const bool is_smaller =
      order.kind == OrderKind::kRun && order.nodes.size() < static_cast<size_t>(options_.coordinator.nodes);
  if (!is_smaller || order.generation <= announced_size_) return;
  announced_size_ = order.generation;
  const bool is_in_group = std::ranges::find(order.nodes, options_.agent.node) != order.nodes.end();
  requests.messages.push_back(fmt::format(
      "the group continues with {} of {} nodes{}", order.nodes.size(), options_.coordinator.nodes,
      is_in_group ? ", and takes in the others when they connect" : "; this one joins it when its ranks are ready"));
}

// Returns whether the order forms a group again, which was not announced yet.
bool Recovery::is_unannounced_restart(const Order& order) const {
  const bool is_restart = order.is_growth || order.generation > order.uncharged;
  return order.kind == OrderKind::kForm && order.generation > announced_ && is_restart;
}

void Recovery::send_order() {
  const std::string line = to_json(coordinator_->order());
  for (Peer& peer : peers_) {
    if (peer.is_authenticated && !peer.is_retired) peer.channel.send(line);
  }
}

// A launcher whose reports no longer affect the group receives the order to end, instead of connecting again for ever.
void Recovery::end_retired_peers() {
  if (!coordinator_) return;
  for (Peer& peer : peers_) {
    if (peer.launcher == 0 || peer.is_retired || !coordinator_->is_retired(peer.launcher)) continue;
    peer.is_retired = true;
    peer.channel.send(to_json(coordinator_->order_for_retired()));
  }
}

void Recovery::publish(SteadyTime now, RecoveryRequests& requests) {
  const Order order = coordinator_->order();
  if (order.is_replaced) return act(agent_.end(order), now, requests);
  send_order();
  if (is_unannounced_restart(order)) {
    announced_ = order.generation;
    requests.messages.push_back(
        order.is_growth ? order.reason
                        : fmt::format("{}; restart {} of {}{}", order.reason, order.generation - order.uncharged,
                                      options_.coordinator.max_restarts, order.respawn ? "" : ", after a delay"));
  }
  announce_fallback(order, requests);
  announce_size(order, requests);
  record_in_pod_restart(order, now);
  act(agent_.received(order), now, requests);
}

// Before the launcher of this node starts its processes.
void Recovery::record_in_pod_restart(const Order& order, SteadyTime now) {
  if (!restarts_all_ranks() || order.generation <= in_pod_restarts_.total) return;
  if (order.kind == OrderKind::kForm && !restarting_since_) restarting_since_ = now;
  if (order.kind != OrderKind::kRun) return;
  const SteadyTime since = std::exchange(restarting_since_, std::nullopt).value_or(now);
  in_pod_restarts_.total = order.generation;
  in_pod_restarts_.seconds += std::chrono::duration<double>(now - since).count();
  in_pod_restarts_.rank = coordinator_->state().cause;
  in_pod_restarts_.reason = order.reason;
}

RecoveryRequests Recovery::exited(int member, int exit_code, SteadyTime now) {
  RecoveryRequests requests;
  read_rank(member, now, requests);  // a request that it sent before its end
  ranks_[static_cast<size_t>(member)].reset();
  if (is_active_) act(agent_.exited(member, exit_code), now, requests);
  return requests;
}

RecoveryRequests Recovery::time_passed(SteadyTime now) {
  RecoveryRequests requests;
  if (!is_active_ || end_without_lease(now, requests)) return requests;
  if (renew_at_ && *renew_at_ <= now) {
    renew_at_.reset();
    report(now, requests);
  }
  if (coordinator_ && find_silent_peers(now)) publish(now, requests);
  if (coordinator_ && coordinator_->time_passed(now)) publish(now, requests);
  end_retired_peers();
  peers_.remove_if([now](const Peer& peer) { return !peer.is_authenticated && peer.deadline <= now; });
  const bool is_closed = upstream_ && !upstream_->is_open();  // a report could not be sent
  if (is_closed || (connected_by_ && *connected_by_ <= now)) disconnect(now);
  if (accept_at_ && *accept_at_ <= now) accept_peers(now, requests);
  if (connect_at_ && *connect_at_ <= now) look_up_coordinator(now);
  if (is_remote() && give_up_at_ && *give_up_at_ <= now) {
    const std::string where = endpoint(options_.coordinator_host, options_.coordinator_port);
    give_up(is_refused_ ? describe_refusal(where)
                        : fmt::format("no connection to the launcher of node rank 0 at {}", where),
            now, requests);
  }
  return requests;
}

// Ends the group on this node.
void Recovery::give_up(const std::string& reason, SteadyTime now, RecoveryRequests& requests) {
  Order lost;
  lost.coordinator = agent_.state().coordinator;
  lost.sequence = agent_.state().order_sequence + 1;
  lost.kind = OrderKind::kEnd;
  lost.reason = reason;
  lost.success = std::ranges::all_of(agent_.state().slots, [](const NodeAgent::Slot& slot) {
    return slot.report.phase == recovery::RankPhase::kFinished;
  });
  requests.is_disconnected = !lost.success;
  act(agent_.end(lost), now, requests);
}

// Ends the ranks of a node that the group may have left out. A launcher that was stopped for a while detects this
// before it reads the messages that have arrived meanwhile.
bool Recovery::end_without_lease(SteadyTime now, RecoveryRequests& requests) {
  if (!options_.lease || !is_remote() || !leased_at_ || now < *leased_at_ + *options_.lease) return false;
  upstream_.reset();
  give_up(fmt::format("the launcher of node rank 0 at {} has not answered for {:.1f} s, so that the other nodes may "
                      "continue without this one",
                      endpoint(options_.coordinator_host, options_.coordinator_port),
                      std::chrono::duration<double>(*options_.lease).count()),
          now, requests);
  return true;
}

RecoveryRequests Recovery::handle(const std::vector<pollfd>& ready, SteadyTime now) {
  RecoveryRequests requests;
  if (is_active_ && end_without_lease(now, requests)) return requests;
  const auto is_ready = [&](int fd) {
    return fd >= 0 && std::ranges::any_of(ready, [fd](const pollfd& entry) { return entry.fd == fd && entry.revents; });
  };
  // First: a report that cannot be sent closes the connection together with the orders that have arrived.
  if (upstream_ && is_ready(upstream_->fd())) read_coordinator(now, requests);
  for (int member = 0; member < options_.agent.ranks; ++member) {
    const auto& channel = ranks_[static_cast<size_t>(member)];
    if (channel && is_ready(channel->fd())) read_rank(member, now, requests);
  }
  if (lookup_ && is_ready(lookup_->fd())) connect_if_found(now);
  for (Peer& peer : peers_) {
    if (!is_ready(peer.channel.fd())) continue;
    peer.channel.flush();
    read_peer(peer, now, requests);
  }
  if (is_ready(listener_.get())) accept_peers(now, requests);
  bool has_changed = false;
  for (const Peer& peer : peers_) {
    // A launcher that has connected again is not lost with its earlier connection.
    const bool is_lost =
        !peer.channel.is_open() && peer.launcher != 0 && std::ranges::none_of(peers_, [&peer](const Peer& other) {
          return other.channel.is_open() && other.launcher == peer.launcher;
        });
    has_changed = (is_lost && coordinator_->disconnected(peer.node, peer.launcher, now)) || has_changed;
  }
  if (has_changed) publish(now, requests);
  end_retired_peers();
  peers_.remove_if([](const Peer& peer) { return !peer.channel.is_open(); });
  return requests;
}

void Recovery::read_rank(int member, SteadyTime now, RecoveryRequests& requests) {
  std::optional<recovery::LineChannel>& channel = ranks_[static_cast<size_t>(member)];
  if (!channel) return;
  channel->flush();
  for (bool is_more = true; is_more;) {
    const std::vector<std::string> lines = channel->read();
    is_more = !lines.empty();
    for (const std::string& line : lines) {
      const auto request = recovery::join_request_from_json(line);
      if (!request) {
        requests.messages.push_back(
            fmt::format("rank {}: {}", options_.agent.first_rank + member, request.error().message));
      } else if (is_active_) {
        if (request->standby_process != 0) requests.standby.push_back({member, request->standby_process});
        act(agent_.joined(member, *request), now, requests);
      }
    }
  }
  if (!channel->is_open()) channel.reset();
}

// A launcher that was requested to stop sends no further reports.
std::optional<SteadyTime> Recovery::silent_at(const Peer& peer) const {
  if (!options_.lease || peer.launcher == 0 || !peer.channel.is_open()) return std::nullopt;
  const recovery::Coordinator::State& state = coordinator_->state();
  if (peer.node < 0 || static_cast<size_t>(peer.node) >= state.nodes.size()) return std::nullopt;
  const auto& node = state.nodes[static_cast<size_t>(peer.node)];
  if (node.launcher != peer.launcher || !node.connected || node.is_stopping) return std::nullopt;
  return peer.received_at + *options_.lease / kSilencesPerLease;
}

// A node without power, or without a network, does not close its connection, which TCP detects after a minute. Returns
// whether the order of the coordinator has changed.
bool Recovery::find_silent_peers(SteadyTime now) {
  bool has_changed = false;
  for (const Peer& peer : peers_) {
    const std::optional<SteadyTime> at = silent_at(peer);
    if (at && *at <= now)
      has_changed = coordinator_->disconnected(peer.node, peer.launcher, now, peer.received_at) || has_changed;
  }
  return has_changed;
}

// Closes a connection if too many are not authenticated: the oldest one of the hosts that have the most. A launcher
// sends its token immediately, so that hosts that hold connections without a token do not keep it from connecting.
void Recovery::make_room_for_peer(SteadyTime now, RecoveryRequests& requests) {
  for (;;) {
    std::map<std::string, size_t> counts;
    size_t unknown = 0;
    size_t most = 0;
    for (const Peer& peer : peers_) {
      if (peer.is_authenticated) continue;
      ++unknown;
      most = std::max(most, ++counts[peer.address]);
    }
    if (unknown < kMaxUnknownPeers) return;
    const auto oldest = std::ranges::find_if(
        peers_, [&](const Peer& peer) { return !peer.is_authenticated && counts.at(peer.address) == most; });
    read_peer(*oldest, now, requests);  // its token may have arrived
    if (oldest->is_authenticated) continue;
    peers_.erase(oldest);
    return;
  }
}

// The listener stays readable if further connections wait.
void Recovery::accept_peers(SteadyTime now, RecoveryRequests& requests) {
  accept_at_.reset();
  for (int i = 0; i < kMaxAccepts; ++i) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // The connection stays in the queue, so that poll(2) would report it again immediately.
      if (errno != EAGAIN) accept_at_ = now + kAcceptDelay;
      return;
    }
    make_room_for_peer(now, requests);
    set_options(socket);
    std::string address = peer_address(socket.get());
    peers_.push_back({.channel = {std::move(socket), kMaxHelloLine},
                      .deadline = now + kHelloTimeout,
                      .address = std::move(address),
                      .received_at = now});
  }
}

void Recovery::read_peer(Peer& peer, SteadyTime now, RecoveryRequests& requests) {
  while (!peer.is_refused) {
    const std::vector<std::string> lines = peer.channel.read();
    if (lines.empty()) return;
    for (const std::string& line : lines) {
      if (!peer.is_authenticated) {
        if (!is_valid_hello(line, options_.token)) {
          peer.is_refused = true;
          peer.channel.send(refusal_line());
          break;
        }
        peer.is_authenticated = true;
        peer.channel.set_max_line(recovery::kMaxLineLength);
        peer.channel.send(to_json(coordinator_->order()));
        continue;
      }
      const auto report = recovery::node_report_from_json(line);
      if (!report || report->node == 0 || (peer.launcher != 0 && report->launcher != peer.launcher))
        return peer.channel.close();
      peer.node = report->node;
      peer.launcher = report->launcher;
      peer.received_at = now;
      if (coordinator_->received(*report, now)) publish(now, requests);
      if (coordinator_->is_retired(report->launcher)) continue;  // end_retired_peers() follows
      if (options_.lease) peer.channel.send(lease_line(report->sequence));
    }
  }
  peer.channel.discard();
}

void Recovery::look_up_coordinator(SteadyTime now) {
  connect_at_.reset();
  lookup_.emplace(options_.coordinator_host, options_.coordinator_port, options_.lookup);
  connect_if_found(now);
}

void Recovery::connect_if_found(SteadyTime now) {
  const std::optional<std::vector<SocketAddress>> addresses = lookup_->result();
  if (!addresses) return;
  lookup_.reset();
  FileDescriptor socket;
  if (!addresses->empty()) socket = begin_connect((*addresses)[connections_++ % addresses->size()]);
  if (!socket.open()) {
    connect_at_ = now + kReconnectDelay;
    return;
  }
  connected_by_ = now + kConnectTimeout;
  upstream_.emplace(std::move(socket), recovery::kMaxLineLength);
  is_connecting_ = true;
}

void Recovery::disconnect(SteadyTime now) {
  upstream_.reset();
  unanswered_.clear();
  renew_at_.reset();
  is_connecting_ = false;
  connected_by_.reset();
  connect_at_ = now + kReconnectDelay;
  if (!give_up_at_) give_up_at_ = now + options_.reconnect_timeout;
}

void Recovery::read_coordinator(SteadyTime now, RecoveryRequests& requests) {
  if (is_connecting_) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(upstream_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return disconnect(now);
    is_connecting_ = false;
    connected_by_.reset();
    agent_.connected();
    upstream_->send(hello_line(options_.token));
    report(now, requests);
  }
  upstream_->flush();
  for (bool is_more = true; is_more;) {
    const std::vector<std::string> lines = upstream_->read();
    is_more = !lines.empty();
    for (const std::string& line : lines) {
      if (const std::optional<uint64_t> answered = lease_from_line(line)) {
        for (; !unanswered_.empty() && unanswered_.front().first <= *answered; unanswered_.pop_front())
          leased_at_ = unanswered_.front().second;
        continue;
      }
      if (is_refusal(line)) {
        if (!std::exchange(is_refused_, true))
          requests.messages.push_back(describe_refusal(endpoint(options_.coordinator_host, options_.coordinator_port)));
        return disconnect(now);
      }
      const auto order = recovery::order_from_json(line);
      if (!order) {
        requests.messages.push_back(order.error().message);
        return disconnect(now);
      }
      give_up_at_.reset();  // the coordinator has accepted the token
      is_refused_ = false;
      if (is_unannounced_restart(*order)) {
        announced_ = order->generation;
        requests.messages.push_back(
            order->is_growth ? order->reason
                             : fmt::format("{}; restart {}", order->reason, order->generation - order->uncharged));
      }
      announce_fallback(*order, requests);
      announce_size(*order, requests);
      act(agent_.received(*order), now, requests);
    }
  }
  if (!upstream_->is_open()) disconnect(now);
}

void Recovery::stop(SteadyTime now) {
  if (is_active_) {
    RecoveryRequests ignored;  // the ranks end for another reason
    act(agent_.stop(), now, ignored);
  }
  is_active_ = false;
  is_stopping_ = true;
}

std::vector<pollfd> Recovery::descriptors() const {
  std::vector<pollfd> fds;
  const auto add = [&fds](const recovery::LineChannel& channel, bool is_connecting = false) {
    const auto events =
        static_cast<int16_t>((is_connecting ? 0 : POLLIN) | (is_connecting || channel.has_queued() ? POLLOUT : 0));
    if (channel.is_open()) fds.push_back({channel.fd(), events, 0});
  };
  for (const auto& channel : ranks_) {
    if (channel) add(*channel);
  }
  if (listener_.open() && !accept_at_) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Peer& peer : peers_) add(peer.channel);
  if (upstream_) add(*upstream_, is_connecting_);
  if (lookup_) fds.push_back({lookup_->fd(), POLLIN, 0});
  return fds;
}

std::optional<SteadyTime> Recovery::deadline() const {
  if (!is_active_) return std::nullopt;
  std::optional<SteadyTime> earliest = coordinator_ ? coordinator_->deadline() : give_up_at_;
  earliest = earlier(earlier(earlier(earliest, connect_at_), connected_by_), accept_at_);
  if (is_remote() && options_.lease) {
    earliest = earlier(earliest, renew_at_);
    if (leased_at_) earliest = earlier(earliest, *leased_at_ + *options_.lease);
  }
  for (const Peer& peer : peers_) {
    earliest = earlier(earliest, peer.is_authenticated ? silent_at(peer) : peer.deadline);
  }
  return earliest;
}

Result<std::map<std::string, std::string>> Recovery::prepare(int member, FileDescriptor& inherited) {
  std::map<std::string, std::string> variables;
  if (options_.agent.policy != recovery::RestartPolicy::kRank) return variables;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "a socket pair cannot be created");
  ranks_[static_cast<size_t>(member)].emplace(FileDescriptor(ends[0]), recovery::kMaxLineLength);
  inherited = FileDescriptor(ends[1]);
  variables[kEnvRegroupFd] = std::to_string(ends[1]);
  return variables;
}

bool Recovery::has_unjoined_rank() const {
  return std::ranges::any_of(agent_.state().slots, [](const NodeAgent::Slot& slot) {
    return slot.report.phase == recovery::RankPhase::kFinished && slot.report.generation < 0;
  });
}

int64_t Recovery::restarts() const { return std::max<int64_t>({0, agent_.state().forming, agent_.state().generation}); }

void Recovery::finish(const Clock& clock, SteadyTime deadline) {
  if (is_stopping_ && coordinator_ && coordinator_->stop()) send_order();
  for (;;) {
    std::vector<pollfd> waiting;
    const auto add = [&waiting](recovery::LineChannel& channel) {
      channel.flush();
      while (channel.is_open() && !channel.read().empty()) {  // unread bytes would turn the close into a reset
      }
      if (channel.is_open() && channel.has_queued()) waiting.push_back({channel.fd(), POLLOUT, 0});
    };
    for (Peer& peer : peers_) add(peer.channel);
    if (upstream_ && !is_connecting_) add(*upstream_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.steady()).count();
    if (waiting.empty() || left <= 0) return;
    ::poll(waiting.data(), waiting.size(), static_cast<int>(left));
  }
}

}  // namespace oarlock::launch
