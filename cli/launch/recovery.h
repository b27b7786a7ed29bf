// The launcher's part in the regroup protocol (docs/recovery.md): it connects recovery::NodeAgent, and on node rank 0
// recovery::Coordinator, with the ranks, which inherit socket pairs, with the launchers of other nodes, and with the
// console.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/coordinator_client.h"
#include "cli/launch/launcher_link.h"
#include "cli/launch/launcher_server.h"
#include "common/clock.h"
#include "common/contract.h"
#include "common/error.h"
#include "common/files.h"
#include "recovery/coordinator.h"
#include "recovery/line_channel.h"
#include "recovery/node_agent.h"

namespace oarlock::launch {

struct RecoveryOptions {
  recovery::NodeAgentOptions agent;
  recovery::CoordinatorOptions coordinator;
  LauncherLinkOptions link;  // with several nodes
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
  // Requests to join from programs that can be standby processes (recovery/standby.h).
  std::vector<StandbySupport> standby = {};
};

// Not thread-safe. All descriptors are non-blocking, and the caller's loop polls them.
class Recovery {
 public:
  // Fails if the coordinator cannot listen on its port.
  static Result<std::unique_ptr<Recovery>> make(RecoveryOptions options);
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
  using Channel = std::optional<recovery::LineChannel>;

  explicit Recovery(RecoveryOptions options);

  // ---- This node ----
  Channel& channel(int member) { return ranks_[static_cast<size_t>(member)]; }
  void read_rank(int member, SteadyTime now, RecoveryRequests& requests);
  void act(recovery::NodeAgent::Actions actions, SteadyTime now, RecoveryRequests& requests);
  void report(SteadyTime now, RecoveryRequests& requests);  // to the coordinator
  void give_up(const std::string& reason, SteadyTime now, RecoveryRequests& requests);
  bool end_without_lease(SteadyTime now, RecoveryRequests& requests);

  // ---- The other nodes ----
  void receive(const std::vector<recovery::NodeReport>& reports, SteadyTime now, RecoveryRequests& requests);
  void receive(const CoordinatorClient::Events& events, SteadyTime now, RecoveryRequests& requests);
  void publish(SteadyTime now, RecoveryRequests& requests);  // the coordinator's order has changed

  // ---- Messages for the console, and the report for the operator ----
  void announce(const recovery::Order& order, RecoveryRequests& requests);
  std::string describe_restart(const recovery::Order& order) const;
  void record_in_pod_restart(const recovery::Order& order, SteadyTime now);

  RecoveryOptions options_;
  recovery::NodeAgent agent_;
  std::vector<Channel> ranks_;                        // absent: the rank does not run, or does not regroup
  std::optional<recovery::Coordinator> coordinator_;  // on node rank 0
  std::optional<LauncherServer> server_;              // on node rank 0
  std::optional<CoordinatorClient> client_;           // on the other nodes
  InPodRestarts in_pod_restarts_;
  std::optional<SteadyTime> restarting_since_;
  int64_t announced_ = -1;      // the newest generation whose formation was announced
  int64_t announced_run_ = -1;  // the newest generation whose completion was announced
  bool is_active_ = true;       // neither has the group ended, nor was this launcher requested to stop
  bool is_stopping_ = false;
};

}  // namespace oarlock::launch
