#include "cli/launch/preflight_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/launcher_link.h"
#include "cli/launch/polling.h"
#include "cli/launch/preflight_messages.h"
#include "common/contract.h"
#include "common/port_socket.h"
#include "recovery/line_channel.h"

namespace oarlock::launch {
namespace {

using std::chrono::milliseconds;

constexpr auto kStopInterval = milliseconds(100);  // between two checks whether the thread is to stop
constexpr auto kPreflightHelloTimeout = std::chrono::seconds(5);
constexpr auto kRoundTimeout = std::chrono::seconds(10);   // more than the launchers need (preflight_link.cc)
constexpr auto kVerdictTimeout = std::chrono::seconds(2);  // until the launchers have read their outcomes
constexpr int kMaxStrangers = 64;                          // connections that are not authenticated
constexpr int kMaxPeerPort = 65535;

class PreflightGroup {
 public:
  PreflightGroup(PreflightServerOptions options, FileDescriptor listener)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        nodes_(static_cast<size_t>(options_.nodes)),
        until_(options_.join_until) {
    for (const bool is_latency : {true, false}) {
      for (const int distance : preflight_distances(options_.nodes)) rounds_.push_back({distance, is_latency});
    }
    for (const int distance : preflight_distances(options_.nodes)) {
      for (int from = 0; from < options_.nodes; ++from)
        links_.push_back({.from = from, .to = (from + distance) % options_.nodes});
    }
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested() && !(is_decided_ && peers_.empty())) {
      std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
      for (const Peer& peer : peers_) add_channel(peer.channel, fds);
      ::poll(fds.data(), fds.size(), poll_timeout(clock_.steady() + kStopInterval, clock_.steady()));
      for (Peer& peer : peers_) {
        if (is_ready(peer.channel.fd(), fds)) read(peer);
      }
      if (is_ready(listener_.get(), fds)) accept_peers();
      remove_closed();
      advance();
    }
  }

 private:
  struct Peer {
    recovery::LineChannel channel;
    std::string address;
    SteadyTime since;  // of the connection, then of the request for the time
    SystemTime requested_at = {};
    bool is_admitted = false;
    std::optional<int> node = {};
    int port = 0;  // of the node's measurements
    std::optional<PreflightResult> result = {};
  };
  struct Round {
    int distance;
    bool is_latency;
  };

  // ---- Connections ----

  // A new connection replaces the oldest one that has sent no token: a launcher sends it immediately, and tries again.
  void accept_peers() {
    for (int i = 0; i < kMaxStrangers; ++i) {
      FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.open()) return;
      if (std::ranges::count(peers_, false, &Peer::is_admitted) >= kMaxStrangers)
        peers_.erase(std::ranges::find(peers_, false, &Peer::is_admitted));
      set_link_options(socket);
      std::string address = peer_address(socket.get());
      peers_.push_back(
          {.channel = {std::move(socket), kMaxHelloLine}, .address = std::move(address), .since = clock_.steady()});
    }
  }

  void read(Peer& peer) {
    peer.channel.flush();
    for (bool is_more = true; is_more;) {
      const std::vector<std::string> lines = peer.channel.read();
      is_more = !lines.empty();
      for (const std::string& line : lines) {
        if (!receive(peer, line)) return peer.channel.close();
      }
    }
  }

  // Returns whether the line is valid.
  bool receive(Peer& peer, const std::string& line) {
    if (!peer.is_admitted) {
      if (!is_valid_hello(line, options_.token)) return false;
      peer.is_admitted = true;
      peer.channel.set_max_line(kMaxPreflightLine);
      peer.channel.send(clock_request());
      peer.since = clock_.steady();
      peer.requested_at = clock_.now();
      return true;
    }
    if (auto join = preflight_join_from_json(line)) return admit(peer, *std::move(join));
    const auto result = preflight_result_from_json(line);
    if (result && result->round == round_) peer.result = result;
    return result.has_value();
  }

  bool admit(Peer& peer, PreflightJoin join) {
    const bool is_valid = join.node >= 0 && join.node < options_.nodes && join.port > 0 && join.port <= kMaxPeerPort;
    if (!is_valid || peer.node || is_measuring() || is_decided_ || nodes_[static_cast<size_t>(join.node)]) return false;
    const auto waited = std::chrono::duration_cast<milliseconds>(clock_.steady() - peer.since);
    const auto requested = std::chrono::duration_cast<milliseconds>(peer.requested_at.time_since_epoch());
    peer.node = join.node;
    peer.port = join.port;
    nodes_[static_cast<size_t>(join.node)] = NodeHealth{.host = std::move(join.host),
                                                        .failures = std::move(join.failures),
                                                        .clock_offset = join.time - (requested + waited / 2),
                                                        .clock_uncertainty = waited / 2};
    return true;
  }

  void remove_closed() {
    const SteadyTime now = clock_.steady();
    for (const Peer& peer : peers_) {
      if (!peer.channel.is_open() && peer.node && !is_decided_)
        lost_.push_back({*peer.node, "its launcher has closed the connection"});
    }
    peers_.remove_if([&](const Peer& peer) {
      return !peer.channel.is_open() || (!peer.is_admitted && peer.since + kPreflightHelloTimeout <= now) ||
             (is_decided_ && (!peer.node || until_ <= now));
    });
  }

  // ---- Decisions ----

  bool is_measuring() const { return round_ >= 0; }

  void advance() {
    if (is_decided_) return;
    // Its pod reports its own failure, and nodes that have not joined still have time.
    if (!lost_.empty()) return decide({.failed = lost_});
    const bool is_late = until_ <= clock_.steady();
    if (!is_measuring()) {
      const bool is_complete = std::ranges::all_of(nodes_, [](const auto& node) { return node.has_value(); });
      if (!is_complete && !is_late) return;
      const PreflightVerdict verdict = judge_preflight(nodes_, {}, options_.limits);
      return verdict.has_passed() ? start_round(0) : decide(verdict);
    }
    const bool is_complete = std::ranges::all_of(peers_, [](const Peer& peer) { return !peer.node || peer.result; });
    if (!is_complete && !is_late) return;
    for (const Peer& peer : peers_) {
      if (peer.node && !peer.result) nodes_[static_cast<size_t>(*peer.node)].reset();
    }
    if (!is_complete) return decide(judge_preflight(nodes_, {}, options_.limits));
    record_round();
    continue_rounds();
  }

  // Repeats all rounds once if a link is slow: other traffic may have disturbed one measurement.
  void continue_rounds() {
    const int next = round_ + 1;
    const int count = static_cast<int>(rounds_.size());
    if (next % count != 0) return start_round(next);
    const PreflightVerdict verdict = judge_preflight(nodes_, links_, options_.limits);
    return verdict.has_passed() || next > count ? decide(verdict) : start_round(next);
  }

  const Round& round_of(int number) const { return rounds_[static_cast<size_t>(number) % rounds_.size()]; }

  void start_round(int number) {
    round_ = number;
    until_ = clock_.steady() + kRoundTimeout;
    const Round& round = round_of(number);
    std::vector<const Peer*> by_node(nodes_.size());
    for (const Peer& peer : peers_) {
      if (peer.node) by_node[static_cast<size_t>(*peer.node)] = &peer;
    }
    for (Peer& peer : peers_) {
      if (!peer.node) continue;
      const Peer& to = *by_node[static_cast<size_t>((*peer.node + round.distance) % options_.nodes)];
      peer.result.reset();
      // The address of node rank 0 is the one that the others have connected to.
      peer.channel.send(to_json(PreflightRound{
          .round = number, .is_latency = round.is_latency, .host = to.node == 0 ? "" : to.address, .port = to.port}));
    }
  }

  // Records the better one of two measurements.
  void record_round() {
    const Round& round = round_of(round_);
    for (const Peer& peer : peers_) {
      if (!peer.node || !peer.result->value) continue;
      const double value = *peer.result->value;
      if (round.is_latency) {
        std::optional<double>& best = link(*peer.node, round.distance).milliseconds;
        best = std::min(best.value_or(value), value);
      } else {  // of the link on which the node receives
        const int from = (*peer.node + options_.nodes - round.distance) % options_.nodes;
        std::optional<double>& best = link(from, round.distance).mbps;
        best = std::max(best.value_or(value), value);
      }
    }
  }

  LinkHealth& link(int from, int distance) {
    const int to = (from + distance) % options_.nodes;
    return *std::ranges::find_if(links_, [&](const LinkHealth& one) { return one.from == from && one.to == to; });
  }

  void decide(const PreflightVerdict& result) {
    for (Peer& peer : peers_) {
      if (peer.node) peer.channel.send(to_json(outcome_of(result, *peer.node)));
    }
    is_decided_ = true;
    until_ = clock_.steady() + kVerdictTimeout;
  }

  const PreflightServerOptions options_;
  const RealClock clock_;
  const FileDescriptor listener_;
  std::list<Peer> peers_;
  std::vector<std::optional<NodeHealth>> nodes_;
  std::vector<Round> rounds_;
  std::vector<LinkHealth> links_;
  int round_ = -1;                // -1: the nodes join
  SteadyTime until_;              // of the phase
  std::vector<FailedNode> lost_;  // nodes that had joined
  bool is_decided_ = false;
};

}  // namespace

Result<std::unique_ptr<PreflightServer>> PreflightServer::start(PreflightServerOptions options) {
  PortSocket listener;
  if (const int error = listen_on_port(options.port, SOMAXCONN, listener); error != 0) {
    return fail(ExitCode::kUnavailable,
                fmt::format("the preflight cannot listen on port {} (MASTER_PORT + {}): {}; choose another "
                            "--master-port on all nodes",
                            options.port, kPreflightPortOffset, std::generic_category().message(error)));
  }
  ::fcntl(listener.socket.get(), F_SETFL, O_NONBLOCK);
  auto group = std::make_unique<PreflightGroup>(std::move(options), std::move(listener.socket));
  std::jthread thread([group = std::move(group)](const std::stop_token& stop) { group->run(stop); });
  return std::unique_ptr<PreflightServer>(new PreflightServer(std::move(thread)));
}

}  // namespace oarlock::launch
