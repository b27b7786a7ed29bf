// What can happen next in the model of the regroup protocol.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/model/regroup_model.h"
#include "tests/support/model/regroup_world.h"

namespace oarlock::test::regroup {

inline constexpr SteadyTime kNow{};

struct Move {
  std::string name;
  World world;
  bool is_fault = false;
};

class Model {
 public:
  explicit Model(const RegroupModelOptions& options) : options_(options) {}
  World initial() const;
  std::vector<Move> moves(const World& world) const;
  bool is_done(const World& world) const { return world.has_succeeded || world.has_ended; }

 private:
  int world_size() const { return options_.nodes * options_.ranks_per_node; }
  int node_of(int rank) const { return rank / options_.ranks_per_node; }
  int local(int rank) const { return rank % options_.ranks_per_node; }

  // ---- Launchers
  void start_launcher(World& world, int node) const;
  void kill_launcher(World& world, int node, bool cut_off) const;
  // Returns whether all ranks train, and no message is in flight.
  bool is_steady(const World& world) const;
  // Cuts off the launcher that runs on the node. Its ranks lose their peers.
  void exile(World& world, int node) const;
  void forget_exile(World& world, int node) const;
  // The launcher of the node that was cut off returns. The one that runs there, if any, is cut off.
  void return_from_exile(World& world, int node) const;
  // A launcher that was replaced ends. If its successor was cut off meanwhile, it is the one that runs there now.
  void end_launcher(World& world, int node) const;
  static void disconnect(Node& node);
  static Process* find(World& world, ProcessId id);
  void act(World& world, int node, const NodeAgent::Actions& actions) const;
  static void send_report(Node& node);
  void send_orders(World& world) const;
  Order current_order(const World& world) const;
  void send_order(const World& world, Node& node) const;
  void add_launchers(const World& world, std::vector<Move>& out) const;
  // Whether the coordinator has received no report of this launcher for a while, although it is connected.
  static bool is_silent(const World& world, int node);

  // ---- Messages
  void deliver_report(World& world, NodeReport report) const;
  void deliver_order(World& world, int node, Order order) const;
  void add_messages(const World& world, std::vector<Move>& out) const;

  // ---- Processes
  bool acts(const Process& process) const { return process.is_alive && !process.is_stopped && !process.has_finished; }
  static bool is_in_group(const Process& process);
  // Returns whether a member of the process's group is not reachable in it.
  bool lost_peer(const World& world, const Process& process) const;
  // `fence` is the generation of another group, if it has claimed the fence that this process needs.
  void join(World& world, Process& process, int64_t fence = -1) const;
  void receive(World& world, Process& process, const RankCommand& command) const;
  void meet(World& world, const std::string& group) const;
  void check_launcher(World& world, const Process& process) const;
  // Rank 0 claims the fence for the group that has met. If another group holds it, rank 0 reports that, and the other
  // members lose it. Returns whether the group may train.
  bool claim_fence(World& world, Process& process) const;
  void enter_training(World& world, Process& process) const;
  void add_commands(const World& world, std::vector<Move>& out) const;
  void receive_next(World& world, Process& process) const;
  void add_processes(const World& world, std::vector<Move>& out) const;
  template <typename Add>
  void add_reception(const World& world, const Process& process, const Add& add) const;
  // The all-reduce of a step completes on each rank separately, after all members have contributed.
  template <typename Add>
  void add_reduction(const World& world, const Process& process, const Add& add) const;
  // A final barrier: all ranks of the group have completed the last step.
  bool is_everyone_done(const World& world, const Process& process) const;

  // ---- Time
  void add_timers(const World& world, std::vector<Move>& out, bool is_fault) const;
  void add_shrink(const World& world, std::vector<Move>& out) const;
  // Returns whether the order has changed. When nodes are left out, their launchers have ended, because they could not
  // renew their lease.
  bool pass_time(World& world, SteadyTime now) const;
  void add_time_outs(const World& world, std::vector<Move>& out) const;
  // A rank that hangs after the others have finished, or together with all others, has no peer that could detect it.
  // The operator's stallPolicy ends such a job.
  void add_stall(const World& world, std::vector<Move>& out) const;

  // ---- Faults
  void add_faults(const World& world, std::vector<Move>& out) const;

  // ---- Invariants
  // A group is complete: no member may hold a newer state than the one that the group continues from.
  void check_completion(World& world) const;
  void check_end(World& world, const Order& order) const;

  RegroupModelOptions options_;
};

}  // namespace oarlock::test::regroup
