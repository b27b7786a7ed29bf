// The launcher's part in the regroup protocol (docs/recovery.md): the I/O for recovery::NodeAgent, and on node rank 0
// for recovery::Coordinator. Ranks are connected by socket pairs that they inherit, and the launchers of other nodes by
// TCP to the coordinator's port, with a shared token.
#pragma once

#include <poll.h>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/host_lookup.h"
#include "common/clock.h"
#include "common/contract.h"
#include "common/error.h"
#include "common/files.h"
#include "common/recovery/coordinator.h"
#include "common/recovery/line_channel.h"
#include "common/recovery/node_agent.h"

namespace oarlock::launch {

struct RecoveryOptions {
  recovery::NodeAgentOptions agent;
  recovery::CoordinatorOptions coordinator;
  // With several nodes: where the coordinator listens, and the token that all launchers of the job share.
  std::string coordinator_host;
  int coordinator_port = 0;
  std::string token;
  std::chrono::milliseconds reconnect_timeout{60'000};  // without a connection to the coordinator
  // If set, as it must be with CoordinatorOptions::min_nodes: the ranks end, and this launcher never connects again,
  // when the coordinator has not answered a report that was sent within this time. Less than shrink_after.
  std::optional<std::chrono::milliseconds> lease = {};
  HostLookup::Lookup lookup = HostLookup::lookup_with_system;
};

// The actions that the group must perform. Members are local ranks.
struct RecoveryRequests {
  struct StandbySupport {
    int member;
    pid_t process;  // as this process sent it
  };

  std::vector<int> kill;   // send SIGKILL to the process group
  std::vector<int> stop;   // send SIGTERM, and SIGKILL after the grace period
  std::vector<int> spawn;  // start the member again; add environment() to its environment
  std::optional<recovery::Order> ended = {};
  // This launcher is no longer in the group, which may continue without it: it has lost the connection to the
  // coordinator, or another launcher has taken its place.
  bool is_disconnected = false;
  std::vector<std::string> messages;  // lines for the console
  // Requests to join from programs that can be standby processes (common/recovery/standby.h).
  std::vector<StandbySupport> standby = {};
};

// Not thread-safe. All descriptors are non-blocking, and the caller's loop polls them.
class Recovery {
 public:
  // Fails if the coordinator cannot listen on its port.
  static Result<std::unique_ptr<Recovery>> make(RecoveryOptions options);
  ~Recovery();
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  // ---- Events ----
  RecoveryRequests start(SteadyTime now);
  // The process of a member, and all processes that it left in its process group, have ended.
  RecoveryRequests exited(int member, int exit_code, SteadyTime now);
  // The caller kills the process of a member, which does not respond while it starts. Another process replaces it.
  void abandon_start(int member) { agent_.abandon_start(member); }
  RecoveryRequests time_passed(SteadyTime now);
  // `ready` holds what poll(2) returned for descriptors().
  RecoveryRequests handle(const std::vector<pollfd>& ready, SteadyTime now);
  // The launcher was requested to stop: nothing starts again. The other launchers receive a report.
  void stop(SteadyTime now);

  std::vector<pollfd> descriptors() const;
  std::optional<SteadyTime> deadline() const;
  // Creates the connection of a process that is about to start, and returns its variables. `inherited` is the
  // descriptor that the process inherits; the caller closes it after the start.
  Result<std::map<std::string, std::string>> prepare(int member, FileDescriptor& inherited);
  bool restarts_all_ranks() const { return options_.agent.policy == recovery::RestartPolicy::kGroup; }
  // The restarts of all processes of the group, on node rank 0, with RestartPolicy::kGroup. Otherwise, none.
  const InPodRestarts& in_pod_restarts() const { return in_pod_restarts_; }
  // Whether a rank of this node has finished without joining a group: its program does not regroup.
  bool has_unjoined_rank() const;
  // The number of restarts before a process that starts now: the generation of its group.
  int64_t restarts() const;
  // All ranks have ended. Returns when the queued messages for the other nodes are sent, or at the deadline.
  void finish(const Clock& clock, SteadyTime deadline);

 private:
  struct Peer {  // a launcher that is connected to this coordinator
    recovery::LineChannel channel;
    bool is_authenticated = false;
    bool is_refused = false;  // its token is another one; it may still read the answer
    bool is_retired = false;  // it has received the order to end
    int node = -1;
    uint64_t launcher = 0;
    SteadyTime deadline;     // of its authentication
    std::string address;     // numeric, without its port
    SteadyTime received_at;  // when its last report arrived
  };

  explicit Recovery(RecoveryOptions options);
  void act(recovery::NodeAgent::Actions actions, SteadyTime now, RecoveryRequests& requests);
  void report(SteadyTime now, RecoveryRequests& requests);
  void publish(SteadyTime now, RecoveryRequests& requests);  // the coordinator's order has changed
  void announce_fallback(const recovery::Order& order, RecoveryRequests& requests);
  void announce_size(const recovery::Order& order, RecoveryRequests& requests);
  void record_in_pod_restart(const recovery::Order& order, SteadyTime now);
  bool is_unannounced_restart(const recovery::Order& order) const;
  void send_order();  // to the other launchers
  void read_rank(int member, SteadyTime now, RecoveryRequests& requests);
  void accept_peers(SteadyTime now, RecoveryRequests& requests);
  void make_room_for_peer(SteadyTime now, RecoveryRequests& requests);
  // When a launcher without reports counts as one without a connection; nothing if it does already, or sends none.
  std::optional<SteadyTime> silent_at(const Peer& peer) const;
  bool find_silent_peers(SteadyTime now);
  void end_retired_peers();
  void read_peer(Peer& peer, SteadyTime now, RecoveryRequests& requests);
  void read_coordinator(SteadyTime now, RecoveryRequests& requests);
  void give_up(const std::string& reason, SteadyTime now, RecoveryRequests& requests);
  bool end_without_lease(SteadyTime now, RecoveryRequests& requests);
  void look_up_coordinator(SteadyTime now);
  void connect_if_found(SteadyTime now);
  void disconnect(SteadyTime now);
  bool is_remote() const { return !coordinator_; }
  bool has_other_nodes() const { return options_.coordinator.nodes > 1; }

  RecoveryOptions options_;
  recovery::NodeAgent agent_;
  std::optional<recovery::Coordinator> coordinator_;  // node rank 0 only
  std::vector<std::optional<recovery::LineChannel>> ranks_;
  FileDescriptor listener_;
  std::optional<SteadyTime> accept_at_;  // when to accept connections again, after a lack of descriptors or memory
  std::list<Peer> peers_;
  std::optional<recovery::LineChannel> upstream_;  // to the coordinator of another node
  std::optional<HostLookup> lookup_;               // of the coordinator's host; in progress
  size_t connections_ = 0;                         // that were begun; selects one of several addresses
  bool is_connecting_ = false;
  bool is_refused_ = false;                 // the coordinator does not accept the token
  std::optional<SteadyTime> connect_at_;    // when to connect again
  std::optional<SteadyTime> connected_by_;  // when a connection attempt ends, since the name may have a new address
  std::optional<SteadyTime> give_up_at_;    // when a missing connection ends the group
  std::deque<std::pair<uint64_t, SteadyTime>> unanswered_;  // reports that may renew the lease, and when they were sent
  std::optional<SteadyTime> leased_at_;  // when the last report that was answered was sent; absent: none was
  std::optional<SteadyTime> renew_at_;   // when to send the next report
  InPodRestarts in_pod_restarts_;
  std::optional<SteadyTime> restarting_since_;
  int64_t announced_ = -1;       // generation
  int64_t announced_run_ = -1;   // generation that began from a checkpoint
  int64_t announced_size_ = -1;  // generation with fewer nodes
  bool is_active_ = true;
  bool is_stopping_ = false;
};

}  // namespace oarlock::launch
