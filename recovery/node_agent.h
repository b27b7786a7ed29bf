// The decisions of a launcher in the regroup protocol (docs/recovery.md), for the ranks of its node. It performs no I/O
// and reads no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recovery/messages.h"

namespace oarlock::recovery {

enum class RestartPolicy {
  kGroup,  // all ranks of the job start again; for any program
  kRank    // failed ranks start again, and the others keep their state; the program must join (RegroupChannel)
};

struct NodeAgentOptions {
  int node = 0;
  int first_rank = 0;
  int ranks = 1;
  RestartPolicy policy = RestartPolicy::kGroup;
  uint64_t launcher = 1;  // random, not 0
  std::string store_host;
  int store_port = 0;
};

// Not thread-safe. A value: the model checker copies it. Ranks are local indices from 0.
class NodeAgent {
 public:
  struct Slot {
    RankReport report;
    bool is_stopping = false;   // kGroup: the process was requested to end for a restart
    int early_exits = 0;        // kRank: of processes outside of a group, without an order to form one
    bool is_abandoned = false;  // kRank: abandon_start() was called for the process
  };
  // The actions of the launcher after an event, in this order.
  struct Actions {
    std::vector<int> kill;   // send SIGKILL
    std::vector<int> stop;   // send SIGTERM, and SIGKILL after the grace period
    std::vector<int> spawn;  // start a process; the previous one and its descendants have ended
    struct Send {
      int rank;
      RankCommand command;
    };
    std::vector<Send> send;           // to a rank
    bool report = false;              // send report() to the coordinator
    std::optional<Order> ended = {};  // the job has ended, by this order
  };

  // Everything that the decisions depend on.
  struct State {
    std::vector<Slot> slots;
    uint64_t processes = 0;       // started by this launcher
    uint64_t reports = 0;         // sent by this launcher
    uint64_t coordinator = 0;     // of the last order
    uint64_t order_sequence = 0;  // of that order
    bool respawns = true;         // whether the last order permits failed ranks to start
    bool is_growth = false;       // of the last order to form a group
    int64_t generation = -1;      // the newest one that has existed
    int64_t uncharged = 0;        // the newest Order::uncharged
    int64_t forming = -1;         // the generation that the last order forms; -1: none
    uint64_t first_coordinator = 0;
    int64_t member_of = -1;           // the newest group that this launcher was in
    int64_t group = -1;               // the newest complete group that this launcher has seen
    uint64_t group_coordinator = 0;   // which has formed it
    std::vector<uint64_t> launchers;  // of that group, by node rank; 0: the node is not in it
    bool is_group_known = false;      // to the coordinator
    int64_t fence = -1;               // the newest JoinRequest::fence
    bool has_ended = false;
    bool is_stopping = false;
  };

  explicit NodeAgent(const NodeAgentOptions& options);

  // Events.
  Actions start();                                       // once, first
  Actions joined(int rank, const JoinRequest& request);  // kRank: a rank called RegroupChannel::regroup()
  Actions exited(int rank, int exit_code);               // its process and all descendants have ended
  // The launcher kills the process of a rank because its start takes too long. Unless it has joined meanwhile, another
  // process takes its place at its end, and the coordinator does not count a failure.
  void abandon_start(int rank);
  // A connection to a coordinator was made, which may not know the newest group.
  void connected() { state_.is_group_known = false; }
  Actions received(const Order& order);  // over that connection
  // The launcher ends the job on its node, with this order as the explanation.
  Actions end(const Order& order);
  // The launcher was requested to stop. Later events of its ranks do not affect the group.
  Actions stop();

  // The report for the coordinator. Each call increases its sequence number.
  NodeReport report();
  const State& state() const { return state_; }

 private:
  ProcessId next_process();
  void form(const Order& order, Actions& actions);
  void run(const Order& order, Actions& actions);
  bool is_outdated(const Order& order) const;
  void remember_group(const Order& order);
  void respawn(int rank, Actions& actions);
  RankCommand assignment(const Order& order, int member) const;

  NodeAgentOptions options_;
  State state_;
};

}  // namespace oarlock::recovery
