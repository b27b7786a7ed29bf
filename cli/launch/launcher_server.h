// The coordinator's side of the connections between launchers, on node rank 0: it accepts and authenticates the
// launchers of other nodes, receives their reports, and sends the orders.
#pragma once

#include <poll.h>

#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/launcher_link.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"
#include "recovery/coordinator.h"
#include "recovery/line_channel.h"

namespace oarlock::launch {

// A launcher that has no connection any more, or counts as one without.
struct LostLauncher {
  int node;
  uint64_t launcher;
  std::optional<SteadyTime> since = {};  // when its last report arrived; absent: its connection was closed
};

// Reads the coordinator, which the caller changes: it passes it the reports and the lost launchers. Not thread-safe.
class LauncherServer {
 public:
  // `coordinator` must outlive it. Without listen(), it has no launchers.
  LauncherServer(const recovery::Coordinator& coordinator, LauncherLinkOptions options)
      : coordinator_(coordinator), options_(std::move(options)) {}

  // Fails if it cannot listen on the port.
  Result<void> listen();

  // Events. They return the reports that have arrived. The caller passes each to the coordinator, and then to answer().
  // `ready` holds what poll(2) returned for add_descriptors().
  std::vector<recovery::NodeReport> handle(const std::vector<pollfd>& ready, SteadyTime now);
  std::vector<recovery::NodeReport> time_passed(SteadyTime now);

  // Renews the lease of the launcher that has sent the report, unless the coordinator has retired it.
  void answer(const recovery::NodeReport& report);
  // Sends the coordinator's order, which has changed, to all launchers; one that connects later receives it, too.
  void send_order();
  // Called when another coordinator has taken the place of this one: the launchers are in its group.
  void close_connections();
  // Sends the order to end to launchers whose reports no longer affect the group; they would connect again for ever.
  void end_retired();
  // Returns the launchers whose connections were closed, or whose reports are missing: a node without power, or without
  // a network, does not close its connection, which TCP detects after a minute. Removes connections that were closed.
  std::vector<LostLauncher> take_lost(SteadyTime now);

  void add_descriptors(std::vector<pollfd>& out) const;
  std::optional<SteadyTime> deadline() const;
  // Calls finish_channel() for all connections.
  void finish(std::vector<pollfd>& waiting);

 private:
  enum class PeerState {
    kUnknown,   // its token has not arrived
    kRefused,   // its token is another one; it may still read the answer
    kAdmitted,  // it receives orders
    kRetired    // it has received the order to end
  };
  struct Sender {  // of reports
    int node;
    uint64_t launcher;
    SteadyTime received_at;  // when the last report arrived
  };
  struct Peer {  // a connection of another launcher, or of any other program
    recovery::LineChannel channel;
    SteadyTime deadline;  // of its authentication
    std::string address;  // numeric, without its port
    PeerState state = PeerState::kUnknown;
    std::optional<Sender> sender = {};  // absent: no report has arrived

    bool is_authenticated() const { return state == PeerState::kAdmitted || state == PeerState::kRetired; }
    bool is_of(uint64_t launcher) const { return sender && sender->launcher == launcher && channel.is_open(); }
  };
  using Reports = std::vector<recovery::NodeReport>;

  void accept_peers(SteadyTime now, Reports& reports);
  void make_room_for_peer(SteadyTime now, Reports& reports);
  void read_peer(Peer& peer, SteadyTime now, Reports& reports);
  void authenticate(Peer& peer, const std::string& line);
  std::optional<SteadyTime> silent_at(const Peer& peer) const;

  const recovery::Coordinator& coordinator_;
  LauncherLinkOptions options_;
  FileDescriptor listener_;
  std::optional<SteadyTime> accept_at_;  // when to accept connections again, after a lack of descriptors or memory
  std::list<Peer> peers_;
};

}  // namespace oarlock::launch
