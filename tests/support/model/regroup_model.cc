#include "tests/support/model/regroup_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recovery/coordinator.h"
#include "recovery/node_agent.h"

namespace oarlock::test {
namespace {

using namespace recovery;  // NOLINT
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SteadyTime kNow{};
constexpr int64_t kTorn = -2;  // the step of a state that is partly overwritten
constexpr int kSigkill = 137;
constexpr int kBitsOfCounter = 20;  // of a ProcessId; the others are those of its launcher
constexpr uint64_t kAlias = 1000;   // PlantedBug::kLeftOutReturns: added to the id of a launcher, which hides it

enum class Activity {
  kStarts,
  kWaits,     // in RegroupChannel::regroup()
  kMeets,     // received its assignment; waits at the store for the others
  kReceives,  // takes over the donor's state
  kTrains,
  kReduces  // contributed the gradients of its next step
};

// One process of a rank.
struct Process {
  ProcessId id = 0;
  int rank = 0;
  bool is_alive = true;
  bool is_stopped = false;  // SIGSTOP, or a hang
  bool is_attached = true;  // its launcher exists; false after the node was cut off and replaced
  bool has_finished = false;
  Activity activity = Activity::kStarts;
  int64_t generation = -1;
  std::string group;        // the store prefix of its group; empty: none
  bool must_leave = false;  // between two steps, as nodes join
  int group_rank = 0;
  int group_size = 0;
  int donor = -1;  // its rank in the group
  int64_t group_step = -1;
  int64_t step = -1;        // of the state that it holds
  int64_t bits = 0;         // of that state: the sizes of the groups that have trained it, a digit for each step
  bool is_corrupt = false;  // it is the partly overwritten one
  std::vector<RankCommand> inbox;
};

struct Node {
  std::optional<NodeAgent> agent;  // empty: the launcher does not run
  bool is_connected = false;
  std::vector<NodeReport> reports;       // in flight
  std::vector<Order> orders;             // in flight
  std::optional<NodeReport> old_report;  // delivered; may arrive again
  std::optional<Order> old_order;
};

// A launcher that was cut off, and continues with its ranks. Nothing reaches it until it returns.
struct Exile {
  Node node;
  std::optional<Coordinator> coordinator;  // of node rank 0
  uint64_t coordinator_id = 0;
};

struct World {
  std::optional<Coordinator> coordinator;
  uint64_t coordinator_id = 0;
  uint64_t coordinators = 0;  // so far
  uint64_t launchers = 0;     // so far
  std::vector<Node> nodes;
  std::vector<std::optional<Exile>> exiles;        // by node rank: the launcher that was cut off last
  std::vector<std::vector<uint64_t>> in_training;  // by node rank: its launchers, in the order of their first group
  int64_t trained_step = 0;                        // the newest one
  std::vector<Process> processes;
  // Contributions to the all-reduce of a step in a group, by rank: the step and the bits of the contributed state.
  std::map<std::pair<std::string, int64_t>, std::map<int, std::pair<int64_t, int64_t>>> contributions;
  std::map<std::string, std::vector<ProcessId>> met;  // members that met at the store of a group
  int64_t trained_generation = -1;                    // of the last completed step
  std::string trained_group;
  int64_t fence = -1;  // generation whose rank 0 may write checkpoints
  ProcessId fence_owner = 0;
  int64_t checkpoint = 0;  // step of the newest one; 0 is the initial state
  int64_t checkpoint_bits = 0;
  int smallest_trained = 0;  // ranks of the smallest group that has trained; 0: none
  bool has_grown = false;
  int faults = 0;
  int charged_faults = 0;  // those after which a group must form again
  bool recovered = false;
  bool has_succeeded = false;
  bool has_ended = false;
  std::string violation;
};

struct Move {
  std::string name;
  World world;
  bool is_fault = false;
};

uint64_t launcher_of(const Process& process) { return process.id >> kBitsOfCounter; }

// Returns the id of the launcher that runs on the node, or 0.
uint64_t launcher_of(const Node& node) {
  const bool has_started = node.agent && node.agent->state().processes > 0;
  return has_started ? node.agent->state().slots[0].report.process >> kBitsOfCounter : 0;
}

// Writes the parts of a world that its future depends on. Identifiers are numbered by their first appearance, and
// sequence numbers are relative to the newest one.
class WorldKey {
 public:
  std::string write(const World& world) {
    if (world.coordinator) put(world, *world.coordinator);
    for (const Node& node : world.nodes) put(world, node);
    for (const std::optional<Exile>& exile : world.exiles) {
      put(exile.has_value());
      if (!exile) continue;
      put(world, exile->node);
      if (exile->coordinator) put(world, *exile->coordinator);
    }
    for (const auto& launchers : world.in_training) put_list(launchers);
    put(world.trained_step);
    put_id(world.coordinator_id);
    for (const Process& process : world.processes) put(process);
    for (const auto& [key, ranks] : world.contributions) {
      if (is_past(world, key.first)) continue;
      put_text(key.first);
      put(key.second);
      for (const auto& [rank, state] : ranks) put(rank, state.first, state.second);
    }
    for (const auto& [group, members] : world.met) {
      if (is_past(world, group)) continue;
      put_text(group);
      put_list(members);
    }
    put_text(world.trained_group);
    put(world.trained_generation, world.fence, world.checkpoint, world.faults, world.charged_faults, world.recovered,
        world.has_succeeded, world.has_ended, world.checkpoint_bits, world.smallest_trained, world.has_grown);
    put_id(world.fence_owner);
    return std::move(text_);
  }

 private:
  void put(const World& world, const Coordinator& coordinator) {
    const Coordinator::State& state = coordinator.state();
    put(static_cast<int64_t>(state.kind), state.generation, state.newest_seen, state.donor, state.step,
        state.lost_handovers, state.short_generations, state.leave_at.has_value(), state.form_at.has_value(),
        state.respawn_at.has_value(), state.began_at.has_value(), state.success,
        static_cast<int64_t>(state.sequence - state.form_sequence), state.uncharged, state.formed_at.has_value());
    put(state.group.size());
    for (const int node : state.group) put(node);
    put(state.is_growth, state.known.generation, state.fence);
    put_list(state.known.launchers);
    for (const Coordinator::RankSlot& slot : state.ranks) {
      put(slot.report);
      put(slot.start_failures);
    }
    for (const Coordinator::NodeSlot& slot : state.nodes) {
      put_id(slot.launcher);
      put(age_of_report(world, slot.launcher, slot.sequence), slot.connected, slot.acknowledged, slot.is_expected,
          slot.is_new, slot.member_of);
    }
    for (const uint64_t launcher : state.retired) put_id(launcher);
    for (const auto* list : {&state.members, &state.receivers, &state.kill}) put_list(*list);
  }
  void put(const World& world, const Node& node) {
    put(node.agent.has_value(), node.is_connected);
    if (node.agent) {
      const NodeAgent::State& state = node.agent->state();
      for (const NodeAgent::Slot& slot : state.slots) {
        put(slot.report);
        put(slot.is_stopping, slot.is_abandoned, slot.early_exits);
      }
      for (const uint64_t coordinator : {state.coordinator, state.first_coordinator, state.group_coordinator})
        put_id(coordinator);
      put(age_of_order(world, state.coordinator, state.order_sequence), state.respawns, state.generation, state.forming,
          state.has_ended, state.uncharged, state.is_growth, state.member_of, state.group, state.is_group_known,
          state.fence);
      put_list(state.launchers);
    }
    put(node.reports.size(), node.orders.size());
    for (const NodeReport& report : node.reports) put(world, report);
    for (const Order& order : node.orders) put(world, order);
    put(node.old_report.has_value(), node.old_order.has_value());
    if (node.old_report) put(world, *node.old_report);
    if (node.old_order) put(world, *node.old_order);
  }
  void put(const Process& process) {
    put_id(process.id);
    put(process.rank, process.is_alive, process.is_stopped, process.is_attached, process.has_finished,
        static_cast<int64_t>(process.activity), process.generation, process.donor, process.group_step, process.step,
        process.is_corrupt, process.inbox.size(), process.group_rank, process.group_size, process.bits,
        process.must_leave);
    put_text(process.group);
    for (const RankCommand& command : process.inbox) {
      put(static_cast<int64_t>(command.kind), command.generation, command.donor, command.step, command.rank,
          command.world_size, command.is_growth);
      put_text(command.store_prefix);
    }
  }
  template <typename... Values>
    requires(std::is_arithmetic_v<Values> && ...)
  void put(Values... values) {
    (text_.push_back(static_cast<char>(values)), ...);
  }
  void put_id(uint64_t id) {
    if (id == 0) return put(0);
    put(ids_.try_emplace(id, ids_.size() + 1).first->second);
  }
  void put_text(const std::string& text) { put(texts_.try_emplace(text, texts_.size() + 1).first->second); }
  void put_list(const std::vector<uint64_t>& list) {
    put(list.size());
    for (const uint64_t id : list) put_id(id);
  }
  void put(const RankReport& report) {
    put(static_cast<int64_t>(report.phase), report.generation, report.step, report.exit_code);
    put_id(report.process);
  }
  void put(const World& world, const NodeReport& report) {
    for (const uint64_t id : {report.launcher, report.coordinator, report.first_coordinator}) put_id(id);
    put(age_of_report(world, report.launcher, report.sequence), report.generation, report.uncharged,
        age_of_order(world, report.coordinator, report.order_sequence), report.member_of, report.group, report.fence);
    put_list(report.launchers);
    for (const RankReport& rank : report.ranks) put(rank);
  }
  void put(const World& world, const Order& order) {
    put_id(order.coordinator);
    put(age_of_order(world, order.coordinator, order.sequence), static_cast<int64_t>(order.kind), order.generation,
        order.respawn, order.donor, order.step, order.success, order.uncharged, order.is_growth, order.is_replaced,
        order.nodes.size());
    put_list(order.launchers);
    for (const int node : order.nodes) put(node);
    put_list(order.kill);
    put_list(order.members);
  }
  // Returns whether all members of a group have left it, and none can enter it again.
  static bool is_past(const World& world, const std::string& group) {
    return world.met.contains(group) &&
           std::ranges::find(world.processes, group, &Process::group) == world.processes.end();
  }
  static int64_t age_of_report(const World& world, uint64_t launcher, uint64_t sequence) {
    for (const Node& node : world.nodes) {
      if (launcher_of(node) == launcher) return static_cast<int64_t>(node.agent->state().reports - sequence);
    }
    for (const std::optional<Exile>& exile : world.exiles) {
      if (exile && launcher_of(exile->node) == launcher)
        return static_cast<int64_t>(exile->node.agent->state().reports - sequence);
    }
    return -1;
  }
  static int64_t age_of_order(const World& world, uint64_t coordinator, uint64_t sequence) {
    if (world.coordinator && coordinator == world.coordinator_id)
      return static_cast<int64_t>(world.coordinator->state().sequence - sequence);
    for (const std::optional<Exile>& exile : world.exiles) {
      if (exile && exile->coordinator && coordinator == exile->coordinator_id)
        return static_cast<int64_t>(exile->coordinator->state().sequence - sequence);
    }
    return -1;
  }

  std::string text_;
  std::map<uint64_t, size_t> ids_;
  std::map<std::string, size_t> texts_;
};

class Model {
 public:
  explicit Model(const RegroupModelOptions& options) : options_(options) {}

  World initial() const {
    World world;
    world.nodes.resize(static_cast<size_t>(options_.nodes));
    world.exiles.resize(world.nodes.size());
    world.in_training.resize(world.nodes.size());
    for (int node = 0; node < options_.nodes; ++node) start_launcher(world, node);
    if (options_.from_start) return world;
    // One of the orders in which the first group forms.
    while (std::ranges::none_of(world.processes,
                                [](const Process& process) { return process.activity == Activity::kTrains; })) {
      world = moves(world).front().world;
    }
    return world;
  }

  std::vector<Move> moves(const World& world) const {
    std::vector<Move> out;
    if (world.has_succeeded || world.has_ended) return out;
    // A command to a rank arrives before anything else happens except a fault: its order relative to the events of
    // other ranks has no effect on them.
    add_commands(world, out);
    if (out.empty()) {
      add_messages(world, out);
      add_processes(world, out);
      add_launchers(world, out);
    }
    if (out.empty()) add_timers(world, out, false);  // time-outs are long
    add_shrink(world, out);
    if (out.empty()) add_stall(world, out);
    if (world.faults < options_.faults) add_faults(world, out);
    return out;
  }

  bool is_done(const World& world) const { return world.has_succeeded || world.has_ended; }

 private:
  int world_size() const { return options_.nodes * options_.ranks_per_node; }
  int node_of(int rank) const { return rank / options_.ranks_per_node; }
  int local(int rank) const { return rank % options_.ranks_per_node; }

  // ---- Launchers ---------------------------------------------------------------------------------------------

  void start_launcher(World& world, int node) const {
    Node& target = world.nodes[static_cast<size_t>(node)];
    target = {};
    NodeAgentOptions agent;
    agent.node = node;
    agent.first_rank = node * options_.ranks_per_node;
    agent.ranks = options_.ranks_per_node;
    agent.policy = RestartPolicy::kRank;
    agent.launcher = ++world.launchers;
    target.agent.emplace(agent);
    if (node == 0) {
      CoordinatorOptions options;
      options.nodes = options_.nodes;
      options.ranks_per_node = options_.ranks_per_node;
      options.max_restarts = options_.max_restarts;
      options.leave_timeout = seconds(1);
      options.form_timeout = hours(1);
      options.shrink_after = milliseconds(10);  // before ranks are killed that have not left
      if (options_.min_nodes > 0) options.min_nodes = options_.min_nodes;
      if (options_.bug == PlantedBug::kTooFewNodes) options.min_nodes = 1;
      options.backoff = milliseconds(options_.backoff ? 1 : 0);
      options.is_replacement = world.coordinators > 0 && options_.bug != PlantedBug::kForgottenGroup;
      world.coordinator_id = ++world.coordinators;
      world.coordinator.emplace(options, world.coordinator_id);
    }
    target.is_connected = node == 0;
    if (node == 0) act(world, node, target.agent->received(world.coordinator->order()));
    act(world, node, target.agent->start());
  }

  void kill_launcher(World& world, int node, bool cut_off) const {
    world.nodes[static_cast<size_t>(node)] = {};
    if (node == 0) {
      world.coordinator.reset();
      for (Node& other : world.nodes) disconnect(other);
    } else if (world.coordinator) {
      world.coordinator->disconnected(node, world.coordinator->state().nodes[static_cast<size_t>(node)].launcher, kNow);
    }
    for (Process& process : world.processes) {
      if (node_of(process.rank) != node) continue;
      process.is_attached = false;
      if (!cut_off) process.is_alive = false;
    }
  }

  // Returns whether all ranks train, and no message is in flight.
  bool is_steady(const World& world) const {
    return world.coordinator && world.coordinator->state().kind == OrderKind::kRun &&
           std::ranges::all_of(
               world.nodes,
               [](const Node& node) { return node.agent && node.reports.empty() && node.orders.empty(); }) &&
           std::ranges::all_of(world.processes, [](const Process& process) {
             return !process.is_attached || process.activity == Activity::kTrains ||
                    process.activity == Activity::kReduces;
           });
  }

  // Cuts off the launcher that runs on the node. Its ranks lose their peers.
  void exile(World& world, int node) const {
    const bool has_coordinator = node == 0;
    for (size_t i = 1; i < world.nodes.size(); ++i) {
      if (!has_coordinator && i != static_cast<size_t>(node)) continue;
      if (world.nodes[i].is_connected && world.coordinator)
        world.coordinator->disconnected(static_cast<int>(i), launcher_of(world.nodes[i]), kNow);
      disconnect(world.nodes[i]);
    }
    for (size_t i = 0; i < world.processes.size(); ++i) {
      if (!world.processes[i].is_attached || node_of(world.processes[i].rank) != node) continue;
      while (!world.processes[i].inbox.empty()) receive_next(world, world.processes[i]);
      if (acts(world.processes[i]) && is_in_group(world.processes[i])) join(world, world.processes[i]);
    }
    forget_exile(world, node);
    for (Process& process : world.processes) process.is_attached = process.is_attached && node_of(process.rank) != node;
    Exile& next = world.exiles[static_cast<size_t>(node)].emplace();
    next.node = std::exchange(world.nodes[static_cast<size_t>(node)], {});
    if (!has_coordinator) return;
    next.coordinator = std::exchange(world.coordinator, std::nullopt);
    next.coordinator_id = world.coordinator_id;
  }

  void forget_exile(World& world, int node) const {
    std::optional<Exile>& exile = world.exiles[static_cast<size_t>(node)];
    if (!exile) return;
    std::erase_if(world.processes, [launcher = launcher_of(exile->node)](const Process& process) {
      return launcher_of(process) == launcher;
    });
    exile.reset();
  }

  // The launcher of the node that was cut off returns. The one that runs there, if any, is cut off.
  void return_from_exile(World& world, int node) const {
    std::optional<Exile>& place = world.exiles[static_cast<size_t>(node)];
    Exile returned = std::move(*place);
    place.reset();
    if (world.nodes[static_cast<size_t>(node)].agent) exile(world, node);
    for (Process& process : world.processes)
      process.is_attached = process.is_attached || launcher_of(process) == launcher_of(returned.node);
    world.nodes[static_cast<size_t>(node)] = std::move(returned.node);
    if (node != 0) return;
    world.coordinator = std::move(returned.coordinator);
    world.coordinator_id = returned.coordinator_id;
    for (size_t i = 1; i < world.nodes.size(); ++i) disconnect(world.nodes[i]);
  }

  // A launcher that was replaced ends. If its successor was cut off meanwhile, it is the one that runs there now.
  void end_launcher(World& world, int node) const {
    const uint64_t launcher = launcher_of(world.nodes[static_cast<size_t>(node)]);
    std::erase_if(world.processes, [&](const Process& process) { return launcher_of(process) == launcher; });
    world.nodes[static_cast<size_t>(node)] = {};
    if (node == 0) world.coordinator.reset();
    for (size_t i = 1; i < world.nodes.size() && node == 0; ++i) disconnect(world.nodes[i]);
    if (world.exiles[static_cast<size_t>(node)]) return_from_exile(world, node);
  }

  static void disconnect(Node& node) {
    node.is_connected = false;
    node.reports.clear();
    node.orders.clear();
    node.old_report.reset();
    node.old_order.reset();
  }

  static Process* find(World& world, ProcessId id) {
    for (Process& process : world.processes) {
      if (process.id == id) return &process;
    }
    return nullptr;
  }

  void act(World& world, int node, const NodeAgent::Actions& actions) const {
    Node& self = world.nodes[static_cast<size_t>(node)];
    const auto process_of = [&](int rank) {
      return self.agent->state().slots[static_cast<size_t>(rank)].report.process;
    };
    for (const int rank : actions.kill) {
      if (Process* process = find(world, process_of(rank))) process->is_alive = false;
    }
    for (const int rank : actions.spawn) {
      // The launcher has waited for the predecessor.
      std::erase_if(world.processes, [&](const Process& process) {
        return process.is_attached && process.rank == node * options_.ranks_per_node + rank;
      });
      Process process;
      process.id = process_of(rank);
      process.rank = node * options_.ranks_per_node + rank;
      world.processes.push_back(process);
    }
    for (const NodeAgent::Actions::Send& send : actions.send) {
      if (Process* process = find(world, process_of(send.rank))) process->inbox.push_back(send.command);
    }
    if (actions.report && self.is_connected && node == 0) {
      deliver_report(world, self.agent->report());  // in the same process
    } else if (actions.report && self.is_connected) {
      send_report(self);
    }
    if (actions.ended && actions.ended->is_replaced) {
      end_launcher(world, node);
    } else if (actions.ended) {
      (actions.ended->success ? world.has_succeeded : world.has_ended) = true;
      check_end(world, *actions.ended);
    }
  }

  static void send_report(Node& node) {
    node.reports.push_back(node.agent->report());
    if (node.reports.size() > 2) node.reports.erase(node.reports.begin());  // lost
  }

  void send_orders(World& world) const {
    for (size_t node = 1; node < world.nodes.size(); ++node) {
      if (world.nodes[node].is_connected) send_order(world, world.nodes[node]);
    }
    deliver_order(world, 0, current_order(world));
  }

  Order current_order(const World& world) const {
    Order order = world.coordinator->order();
    if (options_.bug == PlantedBug::kNoKill) order.kill.clear();
    return order;
  }

  void send_order(const World& world, Node& node) const {
    node.orders.push_back(current_order(world));
    if (node.orders.size() > 2) node.orders.erase(node.orders.begin());
  }

  void add_launchers(const World& world, std::vector<Move>& out) const {
    for (int i = 0; i < options_.nodes; ++i) {
      const Node& node = world.nodes[static_cast<size_t>(i)];
      if (!node.agent) {
        Move& move = out.emplace_back(Move{fmt::format("node {} is replaced", i), world});
        start_launcher(move.world, i);
      } else if (!node.is_connected && world.coordinator) {
        Move& move = out.emplace_back(Move{fmt::format("node {} connects", i), world});
        Node& next = move.world.nodes[static_cast<size_t>(i)];
        next.is_connected = true;
        next.agent->connected();
        send_report(next);
        send_order(move.world, next);
      } else if (is_silent(world, i) && node.reports.empty()) {
        Move& move = out.emplace_back(Move{fmt::format("node {} renews its lease", i), world});
        send_report(move.world.nodes[static_cast<size_t>(i)]);
      }
    }
  }

  // Whether the coordinator has received no report of this launcher for a while, although it is connected.
  static bool is_silent(const World& world, int node) {
    const Node& self = world.nodes[static_cast<size_t>(node)];
    if (!world.coordinator || !self.agent || !self.is_connected || node == 0) return false;
    const Coordinator::NodeSlot& slot = world.coordinator->state().nodes[static_cast<size_t>(node)];
    return !slot.connected && slot.launcher != 0 && slot.launcher == launcher_of(self);
  }

  // ---- Messages ----------------------------------------------------------------------------------------------

  void deliver_report(World& world, NodeReport report) const {
    if (options_.bug == PlantedBug::kLeftOutReturns && world.coordinator->is_retired(report.launcher)) {
      report.launcher += kAlias;
      report.member_of = -1;
      report.first_coordinator = 0;
    }
    if (options_.bug == PlantedBug::kForgottenMembers && world.coordinator->state().members.empty()) {
      report.launchers.clear();
      report.group = report.member_of = report.fence = -1;
      report.first_coordinator = 0;
    }
    if (options_.bug == PlantedBug::kStaleReport)
      report.sequence = world.coordinator->state().nodes[static_cast<size_t>(report.node)].sequence + 1;
    if (options_.bug == PlantedBug::kNoAcknowledgement) {
      report.coordinator = world.coordinator_id;
      report.order_sequence = world.coordinator->state().sequence;
    }
    if (options_.bug == PlantedBug::kIncompleteGroup) {
      for (RankReport& rank : report.ranks) {
        if (rank.phase == RankPhase::kRunning && report.node == options_.nodes - 1 && rank.generation == 0 &&
            world.coordinator->state().kind == OrderKind::kForm) {
          rank.phase = RankPhase::kJoined;
        }
      }
    }
    const OrderKind before = world.coordinator->state().kind;
    const bool changed = world.coordinator->received(report, kNow);
    Node& sender = world.nodes[static_cast<size_t>(report.node)];
    if (world.coordinator->is_retired(report.launcher) && launcher_of(sender) == report.launcher)
      sender.orders = {world.coordinator->order_for_retired()};
    if (world.coordinator->state().is_replaced) return end_launcher(world, 0);
    if (!changed) return;
    if (before != OrderKind::kRun && world.coordinator->state().kind == OrderKind::kRun) check_completion(world);
    send_orders(world);
  }

  void deliver_order(World& world, int node, Order order) const {
    NodeAgent& agent = *world.nodes[static_cast<size_t>(node)].agent;
    if (options_.bug == PlantedBug::kOldestDonor && order.donor >= 0) {
      for (const Process& process : world.processes) {
        if (process.is_attached && process.step >= 0 && process.step < order.step) {
          order.donor = process.rank;
          order.step = process.step;
        }
      }
    }
    if (options_.bug == PlantedBug::kReplacedMember && !order.members.empty()) {
      for (int i = 0; i < options_.ranks_per_node; ++i) {
        order.members[static_cast<size_t>(node * options_.ranks_per_node + i)] =
            agent.state().slots[static_cast<size_t>(i)].report.process;
      }
    }
    act(world, node, agent.received(order));
  }

  void add_messages(const World& world, std::vector<Move>& out) const {
    for (int i = 0; i < options_.nodes; ++i) {
      const Node& node = world.nodes[static_cast<size_t>(i)];
      for (size_t k = 0; k < node.reports.size(); ++k) {
        Move& move =
            out.emplace_back(Move{fmt::format("a report of node {} arrives{}", i, k > 0 ? " early" : ""), world});
        Node& next = move.world.nodes[static_cast<size_t>(i)];
        if (!options_.returns) next.old_report = next.reports[k];
        next.reports.erase(next.reports.begin() + static_cast<std::ptrdiff_t>(k));
        deliver_report(move.world, node.reports[k]);
      }
      for (size_t k = 0; k < node.orders.size(); ++k) {
        Move& move =
            out.emplace_back(Move{fmt::format("an order arrives at node {}{}", i, k > 0 ? " early" : ""), world});
        Node& next = move.world.nodes[static_cast<size_t>(i)];
        if (!options_.returns) next.old_order = next.orders[k];
        next.orders.erase(next.orders.begin() + static_cast<std::ptrdiff_t>(k));
        deliver_order(move.world, i, node.orders[k]);
      }
    }
  }

  // ---- Processes ---------------------------------------------------------------------------------------------

  bool acts(const Process& process) const { return process.is_alive && !process.is_stopped && !process.has_finished; }

  static bool is_in_group(const Process& process) {
    return process.activity == Activity::kMeets || process.activity == Activity::kReceives ||
           process.activity == Activity::kTrains || process.activity == Activity::kReduces;
  }

  // Returns whether a member of the process's group is not reachable in it.
  bool lost_peer(const World& world, const Process& process) const {
    const auto met = world.met.find(process.group);
    if (met == world.met.end()) return false;  // waits at the store
    for (const ProcessId id : met->second) {
      bool is_there = false;
      for (const Process& other : world.processes)
        is_there = is_there || (other.id == id && other.is_alive && !other.is_stopped && other.group == process.group &&
                                is_in_group(other));
      if (!is_there) return true;
    }
    return false;
  }

  // `fence` is the generation of another group, if it has claimed the fence that this process needs.
  void join(World& world, Process& process, int64_t fence = -1) const {
    JoinRequest request;
    request.fence = fence;
    request.generation = process.generation;
    request.step = process.step == kTorn ? -1 : process.step;
    if (options_.bug == PlantedBug::kTornStateReported && process.step == kTorn) {
      request.step = process.step = process.group_step;
      process.is_corrupt = true;
    }
    if (process.step == kTorn) process.step = -1;
    const bool reads_fence = process.rank == 0 && process.activity == Activity::kStarts && options_.checkpoints &&
                             options_.bug != PlantedBug::kForgottenGroup;
    if (reads_fence) request.fence = world.fence;
    const bool stays = options_.bug == PlantedBug::kStaysInGroup && process.activity == Activity::kReduces;
    if (!stays) {
      process.activity = Activity::kWaits;
      process.must_leave = false;
      process.group.clear();
    }
    if (!process.is_attached) return;
    const int node = node_of(process.rank);
    act(world, node, world.nodes[static_cast<size_t>(node)].agent->joined(local(process.rank), request));
  }

  void receive(World& world, Process& process, const RankCommand& command) const {
    if (command.kind == RankCommand::Kind::kLeave) {
      if (!is_in_group(process) || process.generation != command.generation) return;
      if (!command.is_growth) return join(world, process);
      process.must_leave = true;
      return;
    }
    if (command.kind != RankCommand::Kind::kAssign || command.generation <= process.generation) return;
    process.activity = Activity::kMeets;
    process.generation = command.generation;
    process.group = command.store_prefix;
    process.donor = command.donor;
    process.group_step = command.step;
    process.group_rank = options_.bug == PlantedBug::kSparseRanks ? process.rank : command.rank;
    process.group_size = command.world_size;
  }

  void meet(World& world, const std::string& group) const {
    std::vector<ProcessId> members(static_cast<size_t>(world_size()), 0);
    int size = 0;
    for (const Process& process : world.processes) {
      if (!acts(process) || process.activity != Activity::kMeets || process.group != group) continue;
      ++size;
      ProcessId& member = members[static_cast<size_t>(process.group_rank)];
      const bool is_valid =
          process.group_rank < process.group_size && member == 0 && (process.group_rank == 0) == (process.rank == 0);
      if (!is_valid)
        world.violation =
            fmt::format("{} has rank {} as rank {} of {}", group, process.rank, process.group_rank, process.group_size);
      member = process.id;
    }
    std::erase(members, ProcessId{0});
    if (size < std::max(options_.min_nodes, 1) * options_.ranks_per_node ||
        (options_.min_nodes == 0 && size < world_size()))
      world.violation = fmt::format("{} has {} ranks only", group, size);
    if (world.smallest_trained == 0 || size < world.smallest_trained) world.smallest_trained = size;
    world.has_grown = world.has_grown || size > world.smallest_trained;
    world.met[group] = members;
    if (options_.checkpoints && !claim_fence(world, *find(world, members[0]))) return;
    for (const ProcessId id : members) {
      Process& process = *find(world, id);
      check_launcher(world, process);
      if (process.donor >= 0 && process.group_step + 1 < world.trained_step && options_.returns)
        world.violation = fmt::format("{} goes back from step {} to the donor's step {}", group, world.trained_step,
                                      process.group_step);
      if (process.donor >= 0 && process.group_rank == process.donor && process.step != process.group_step) {
        world.violation =
            fmt::format("the donor of {} holds step {} instead of {}", group, process.step, process.group_step);
      }
      if (process.step > process.group_step)
        world.violation = fmt::format("{} begins after step {}, and rank {} loses step {}", group, process.group_step,
                                      process.rank, process.step);
      if (process.donor < 0) {
        process.step = world.checkpoint;
        process.bits = world.checkpoint_bits;
      }
      process.activity =
          process.donor < 0 || process.step == process.group_step ? Activity::kTrains : Activity::kReceives;
      if (process.activity == Activity::kTrains) enter_training(world, process);
    }
  }

  void check_launcher(World& world, const Process& process) const {
    std::vector<uint64_t>& launchers = world.in_training[static_cast<size_t>(node_of(process.rank))];
    const uint64_t launcher = launcher_of(process);
    if (!launchers.empty() && launchers.back() == launcher) return;
    if (std::ranges::find(launchers, launcher) != launchers.end())
      world.violation = fmt::format("{} contains rank {} of a launcher that was replaced", process.group, process.rank);
    launchers.push_back(launcher);
  }

  // Rank 0 claims the fence for the group that has met. If another group holds it, rank 0 reports that, and the other
  // members lose it. Returns whether the group may train.
  bool claim_fence(World& world, Process& process) const {
    const bool is_taken =
        world.fence > process.generation || (world.fence == process.generation && world.fence_owner != process.id);
    if (is_taken && options_.bug != PlantedBug::kSharedFence && options_.bug != PlantedBug::kForgottenGroup) {
      join(world, process, world.fence);
      return false;
    }
    if (is_taken) {
      world.violation = fmt::format("two processes of rank 0 hold the checkpoint fence of generation {}", world.fence);
      return false;
    }
    world.fence = process.generation;
    world.fence_owner = process.id;
    return true;
  }

  void enter_training(World& world, Process& process) const {
    process.activity = Activity::kTrains;
    if (process.rank != 0 || !options_.checkpoints || world.fence_owner == process.id) return;
    world.violation = fmt::format("rank 0 of generation {} is behind the fence of {}", process.generation, world.fence);
  }

  void add_commands(const World& world, std::vector<Move>& out) const {
    for (size_t i = 0; i < world.processes.size() && out.empty(); ++i) {
      const Process& process = world.processes[i];
      if (!acts(process) || process.inbox.empty()) continue;
      Move& move = out.emplace_back(Move{fmt::format("rank {} receives a command", process.rank), world});
      Process& self = move.world.processes[i];
      receive_next(move.world, self);
    }
  }

  void receive_next(World& world, Process& process) const {
    const RankCommand command = process.inbox.front();
    process.inbox.erase(process.inbox.begin());
    receive(world, process, command);
  }

  void add_processes(const World& world, std::vector<Move>& out) const {
    std::map<std::string, std::pair<int, int>> waiting;  // processes at the store of a group, and its size
    for (size_t i = 0; i < world.processes.size(); ++i) {
      const Process& process = world.processes[i];
      const auto add = [&](std::string name) -> std::pair<World&, Process&> {
        Move& move = out.emplace_back(
            Move{fmt::format("rank {}{} {}", process.rank, process.is_attached ? "" : " (cut off)", name), world});
        return {move.world, move.world.processes[i]};
      };
      if (process.is_attached && (!process.is_alive || process.has_finished)) {
        const int node = node_of(process.rank);
        const NodeAgent& agent = *world.nodes[static_cast<size_t>(node)].agent;
        const RankReport& report = agent.state().slots[static_cast<size_t>(local(process.rank))].report;
        if (report.process == process.id && report.phase != RankPhase::kExited &&
            report.phase != RankPhase::kFinished) {
          auto [next, self] = add(process.has_finished ? "is reaped after it finished" : "is reaped");
          act(next, node,
              next.nodes[static_cast<size_t>(node)].agent->exited(local(process.rank),
                                                                  process.has_finished ? 0 : kSigkill));
        }
      }
      if (!acts(process) || (options_.returns && !process.is_attached)) continue;
      if (process.activity == Activity::kStarts) {
        auto [next, self] = add("joins");
        join(next, self);
      }
      if (process.activity == Activity::kMeets) {
        ++waiting[process.group].first;
        waiting[process.group].second = process.group_size;
      }
      if (!is_in_group(process)) continue;
      if (lost_peer(world, process)) {
        auto [next, self] = add("leaves, as it lost a peer");
        join(next, self);
      }
      if (process.must_leave && process.activity == Activity::kTrains) {
        auto [next, self] = add("leaves between two steps");
        join(next, self);
      }
      if (process.activity == Activity::kReceives) add_reception(world, process, add);
      if (process.activity == Activity::kTrains && process.step < options_.steps) {
        auto [next, self] = add(fmt::format("contributes to step {}", process.step + 1));
        if (self.is_corrupt) next.violation = "a rank trains with a partly overwritten state";
        self.activity = Activity::kReduces;
        next.contributions[{self.group, self.step + 1}][self.group_rank] = {self.step, self.bits};
      }
      if (process.activity == Activity::kReduces) add_reduction(world, process, add);
      if (process.activity == Activity::kTrains && process.step == options_.steps && is_everyone_done(world, process)) {
        auto [next, self] = add("finishes");
        self.has_finished = true;
      }
      const bool saves = options_.checkpoints && process.rank == 0 && process.activity == Activity::kTrains;
      if (saves && process.step > world.checkpoint && world.fence == process.generation) {
        auto [next, self] = add(fmt::format("saves step {}", process.step));
        if (next.fence_owner != self.id) next.violation = "a process that does not own the fence writes a checkpoint";
        next.checkpoint = self.step;
        next.checkpoint_bits = self.bits;
      }
    }
    for (const auto& [group, count] : waiting) {
      if (count.first != count.second) continue;
      Move& move = out.emplace_back(Move{"all ranks of " + group + " meet", world});
      meet(move.world, group);
    }
  }

  template <typename Add>
  void add_reception(const World& world, const Process& process, const Add& add) const {
    if (process.step != kTorn) {
      auto [next, self] = add("begins to receive the state");
      self.step = kTorn;
      return;
    }
    for (const Process& donor : world.processes) {
      if (donor.group != process.group || donor.group_rank != process.donor || !acts(donor) || !is_in_group(donor))
        continue;
      auto [next, self] = add("has received the state");
      self.step = process.group_step;
      self.bits = donor.bits;
      self.is_corrupt = donor.is_corrupt;
      next.recovered = true;
      enter_training(next, self);
    }
  }

  // The all-reduce of a step completes on each rank separately, after all members have contributed.
  template <typename Add>
  void add_reduction(const World& world, const Process& process, const Add& add) const {
    const auto found = world.contributions.find({process.group, process.step + 1});
    if (found == world.contributions.end() || found->second.size() != static_cast<size_t>(process.group_size)) return;
    auto [next, self] = add(fmt::format("completes step {}", process.step + 1));
    for (const auto& [rank, state] : found->second) {
      if (state.first != process.step || state.first < 0)
        next.violation = fmt::format("rank {} trains from step {}, and rank {} from step {}", process.rank,
                                     process.step, rank, state.first);
      if (state.second != process.bits)
        next.violation = fmt::format("ranks of {} train from step {} with different bits", process.group, process.step);
    }
    if (process.is_attached) {
      if (process.generation < world.trained_generation ||
          (process.generation == world.trained_generation && process.group != world.trained_group)) {
        next.violation = fmt::format("{} trains after {}", process.group, world.trained_group);
      }
      next.trained_step = std::max(next.trained_step, process.step + 1);
      next.trained_generation = process.generation;
      next.trained_group = process.group;
    }
    ++self.step;
    self.bits = self.bits * 4 + self.group_size;
    self.activity = Activity::kTrains;
  }

  // A final barrier: all ranks of the group have completed the last step.
  bool is_everyone_done(const World& world, const Process& process) const {
    const auto members = world.met.find(process.group);
    return members != world.met.end() && std::ranges::all_of(members->second, [&](ProcessId id) {
             return std::ranges::any_of(world.processes, [&](const Process& other) {
               return other.id == id && (other.has_finished || (other.is_alive && other.group == process.group &&
                                                                other.step == options_.steps));
             });
           });
  }

  // ---- Time --------------------------------------------------------------------------------------------------

  void add_timers(const World& world, std::vector<Move>& out, bool is_fault) const {
    if (!world.coordinator) return;
    const Coordinator::State& state = world.coordinator->state();
    const auto add = [&](const char* name, SteadyTime now) {
      Move move{name, world, is_fault};
      if (pass_time(move.world, now)) out.push_back(std::move(move));
    };
    if (state.respawn_at) return add("the back-off ends", *state.respawn_at);
    if (state.leave_at) add("ranks that have not left are killed", *state.leave_at);
    // Collectives and the store time out before the formation of the next group does.
    if (!is_fault && out.empty()) add_time_outs(world, out);
    if (!is_fault && out.empty() && state.form_at) add("the time to form the group is over", *state.form_at);
  }

  void add_shrink(const World& world, std::vector<Move>& out) const {
    if (!world.coordinator) return;
    const std::optional<SteadyTime> at = world.coordinator->leave_out_at();
    if (!at) return;
    Move move{"nodes that are missing are left out", world};
    pass_time(move.world, *at);
    out.push_back(std::move(move));
  }

  // Returns whether the order has changed. When nodes are left out, their launchers have ended, because they could not
  // renew their lease.
  bool pass_time(World& world, SteadyTime now) const {
    const std::optional<SteadyTime> at = world.coordinator->leave_out_at();
    for (int i = 0; at && *at <= now && i < options_.nodes; ++i) {
      const Node& node = world.nodes[static_cast<size_t>(i)];
      const bool is_missing = node.agent && (!node.is_connected || is_silent(world, i));
      if (is_missing && options_.bug != PlantedBug::kLeftOutReturns) kill_launcher(world, i, true);
    }
    const OrderKind before = world.coordinator->state().kind;
    const bool changed = world.coordinator->time_passed(now);
    if (before != OrderKind::kRun && world.coordinator->state().kind == OrderKind::kRun) check_completion(world);
    if (changed) send_orders(world);
    return changed;
  }

  void add_time_outs(const World& world, std::vector<Move>& out) const {
    for (size_t i = 0; i < world.processes.size(); ++i) {
      const Process& process = world.processes[i];
      if (!acts(process) || !process.is_attached || !is_in_group(process)) continue;
      Move& move = out.emplace_back(Move{fmt::format("rank {} times out", process.rank), world});
      join(move.world, move.world.processes[i]);
    }
  }

  // A rank that hangs after the others have finished, or together with all others, has no peer that could detect it.
  // The operator's stallPolicy ends such a job.
  void add_stall(const World& world, std::vector<Move>& out) const {
    const bool is_unnoticed = world.coordinator && world.coordinator->state().kind == OrderKind::kRun;
    if (!is_unnoticed || std::ranges::none_of(world.processes, &Process::is_stopped)) return;
    out.emplace_back(Move{"the job stalls", world}).world.has_ended = true;
  }

  // ---- Faults ------------------------------------------------------------------------------------------------

  void add_faults(const World& world, std::vector<Move>& out) const {
    const auto add = [&](std::string name, bool is_charged) -> World& {
      Move& move = out.emplace_back(Move{"FAULT: " + std::move(name), world, true});
      ++move.world.faults;
      move.world.charged_faults += is_charged ? 1 : 0;
      return move.world;
    };
    for (int i = 0; i < options_.nodes && options_.returns; ++i) {
      if (world.nodes[static_cast<size_t>(i)].agent && (!options_.cuts_in_steady_groups || is_steady(world)))
        exile(add(fmt::format("node {} is cut off, and continues", i), true), i);
      const bool may_return = i > 0 || !options_.cut_off_coordinator_ends;
      if (world.exiles[static_cast<size_t>(i)] && may_return)
        return_from_exile(add(fmt::format("the launcher of node {} that was cut off returns", i), true), i);
    }
    if (options_.returns) return;
    for (size_t i = 0; i < world.processes.size(); ++i) {
      const Process& process = world.processes[i];
      if (!acts(process) || !process.is_attached) continue;
      add(fmt::format("rank {} is killed", process.rank), true).processes[i].is_alive = false;
      if (is_in_group(process)) add(fmt::format("rank {} hangs", process.rank), true).processes[i].is_stopped = true;
    }
    for (int i = 0; i < options_.nodes; ++i) {
      const Node& node = world.nodes[static_cast<size_t>(i)];
      if (!node.agent) continue;
      kill_launcher(add(fmt::format("the launcher of node {} is killed", i), true), i, false);
      kill_launcher(add(fmt::format("node {} is cut off", i), true), i, true);
      if (!node.is_connected || i == 0) continue;
      if (options_.min_nodes > 0) {
        World& isolated = add(fmt::format("node {} is not reachable for a while", i), true);
        disconnect(isolated.nodes[static_cast<size_t>(i)]);
        isolated.coordinator->disconnected(i, isolated.coordinator->state().nodes[static_cast<size_t>(i)].launcher,
                                           kNow);
        for (size_t k = 0; k < isolated.processes.size(); ++k) {
          Process& process = isolated.processes[k];
          if (process.is_attached && node_of(process.rank) == i && acts(process) && is_in_group(process))
            join(isolated, process);
        }
      }
      if (options_.min_nodes > 0 && !is_silent(world, i)) {
        World& silent = add(fmt::format("the reports of node {} are late", i), true);
        silent.coordinator->disconnected(i, silent.coordinator->state().nodes[static_cast<size_t>(i)].launcher, kNow);
      }
      World& broken = add(fmt::format("the connection of node {} breaks", i), true);
      Node& self = broken.nodes[static_cast<size_t>(i)];
      disconnect(self);
      broken.coordinator->disconnected(i, broken.coordinator->state().nodes[static_cast<size_t>(i)].launcher, kNow);
      if (node.old_report) {
        World& next = add(fmt::format("an old report of node {} arrives again", i), false);
        deliver_report(next, *node.old_report);
      }
      if (node.old_order) {
        World& next = add(fmt::format("an old order arrives again at node {}", i), false);
        deliver_order(next, i, *node.old_order);
      }
    }
    const size_t before = out.size();
    add_timers(world, out, true);
    for (size_t i = before; i < out.size(); ++i) {
      out[i].name = "FAULT: early: " + out[i].name;
      ++out[i].world.faults;
      ++out[i].world.charged_faults;
    }
  }

  // ---- Invariants --------------------------------------------------------------------------------------------

  // A group is complete: no member may hold a newer state than the one that the group continues from.
  void check_completion(World& world) const {
    const Coordinator::State& state = world.coordinator->state();
    for (const ProcessId id : state.members) {
      const Process* process = find(world, id);
      if (process == nullptr || !process->is_attached) continue;
      if (process->step > state.step) {
        world.violation = fmt::format("generation {} continues after step {}, but rank {} has completed step {}",
                                      state.generation, state.step, process->rank, process->step);
      }
    }
  }

  void check_end(World& world, const Order& order) const {
    if (order.success) return;
    const bool is_explained = order.reason.find("already finished") != std::string::npos ||
                              order.reason.find("all launchers that knew the group") != std::string::npos ||
                              order.reason.find("donor of the state was lost twice") != std::string::npos ||
                              world.charged_faults > options_.max_restarts;
    if (!is_explained)
      world.violation = fmt::format("the job ends after {} faults: {}", world.charged_faults, order.reason);
  }

  RegroupModelOptions options_;
};

}  // namespace

RegroupModelResult check_regroup(const RegroupModelOptions& options) {
  struct Visited {
    size_t parent;
    std::string move;
    bool is_done;
  };
  const Model model(options);
  RegroupModelResult result;
  std::unordered_map<std::string, size_t> index;
  std::vector<Visited> visited;
  std::vector<std::vector<size_t>> predecessors;  // by moves that are not faults
  std::deque<std::pair<size_t, World>> queue;
  const auto trace = [&](size_t state) {
    std::vector<std::string> lines;
    for (; state != 0; state = visited[state].parent) lines.push_back(visited[state].move);
    std::string text;
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += "\n  " + *line;
    return text;
  };
  const auto add = [&](World world, size_t parent, const std::string& move) -> size_t {
    const auto [entry, is_new] = index.try_emplace(WorldKey().write(world), visited.size());
    if (!is_new) return entry->second;
    visited.push_back({parent, move, model.is_done(world)});
    predecessors.emplace_back();
    if (world.coordinator) {
      result.most_generations =
          std::max(result.most_generations, static_cast<size_t>(world.coordinator->state().generation) + 1);
    }
    result.saw_success = result.saw_success || world.has_succeeded;
    result.saw_recovery = result.saw_recovery || (world.has_succeeded && world.recovered);
    result.saw_fallback = result.saw_fallback || world.has_ended;
    result.saw_shrunk = result.saw_shrunk || (world.has_succeeded && world.smallest_trained > 0 &&
                                              world.smallest_trained < options.nodes * options.ranks_per_node);
    result.saw_grown = result.saw_grown || (world.has_succeeded && world.has_grown);
    if (!world.violation.empty() && result.violation.empty())
      result.violation = world.violation + trace(visited.size() - 1);
    queue.emplace_back(visited.size() - 1, std::move(world));
    return visited.size() - 1;
  };
  add(model.initial(), 0, "");
  while (!queue.empty() && result.violation.empty() && visited.size() < options.max_states) {
    const auto [state, world] = std::move(queue.front());
    queue.pop_front();
    for (Move& move : model.moves(world)) {
      ++result.transitions;
      const size_t next = add(std::move(move.world), state, move.name);
      if (!move.is_fault) predecessors[next].push_back(state);
      if (!result.violation.empty()) break;
    }
  }
  result.states = visited.size();
  result.is_complete = queue.empty();
  if (!result.is_complete || !result.violation.empty()) return result;
  // Progress: without further faults, every state can reach the end of the job.
  std::vector<bool> can_finish(visited.size());
  std::vector<size_t> pending;
  for (size_t state = 0; state < visited.size(); ++state) {
    if (visited[state].is_done) pending.push_back(state);
  }
  while (!pending.empty()) {
    const size_t state = pending.back();
    pending.pop_back();
    if (can_finish[state]) continue;
    can_finish[state] = true;
    pending.insert(pending.end(), predecessors[state].begin(), predecessors[state].end());
  }
  for (size_t state = 0; state < visited.size() && result.violation.empty(); ++state) {
    if (!can_finish[state]) result.violation = "the job can never finish" + trace(state);
  }
  return result;
}

}  // namespace oarlock::test
