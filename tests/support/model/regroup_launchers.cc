#include "tests/support/model/regroup_moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace oarlock::test::regroup {

namespace {

constexpr uint64_t kAlias = 1000;  // PlantedBug::kLeftOutReturns: added to the id of a launcher, which hides it

}  // namespace

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

World Model::initial() const {
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

std::vector<Move> Model::moves(const World& world) const {
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

void Model::start_launcher(World& world, int node) const {
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

void Model::kill_launcher(World& world, int node, bool cut_off) const {
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

bool Model::is_steady(const World& world) const {
  return world.coordinator && world.coordinator->state().kind == OrderKind::kRun &&
         std::ranges::all_of(
             world.nodes, [](const Node& node) { return node.agent && node.reports.empty() && node.orders.empty(); }) &&
         std::ranges::all_of(world.processes, [](const Process& process) {
           return !process.is_attached || process.activity == Activity::kTrains ||
                  process.activity == Activity::kReduces;
         });
}

void Model::exile(World& world, int node) const {
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

void Model::forget_exile(World& world, int node) const {
  std::optional<Exile>& exile = world.exiles[static_cast<size_t>(node)];
  if (!exile) return;
  std::erase_if(world.processes, [launcher = launcher_of(exile->node)](const Process& process) {
    return launcher_of(process) == launcher;
  });
  exile.reset();
}

void Model::return_from_exile(World& world, int node) const {
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

void Model::end_launcher(World& world, int node) const {
  const uint64_t launcher = launcher_of(world.nodes[static_cast<size_t>(node)]);
  std::erase_if(world.processes, [&](const Process& process) { return launcher_of(process) == launcher; });
  world.nodes[static_cast<size_t>(node)] = {};
  if (node == 0) world.coordinator.reset();
  for (size_t i = 1; i < world.nodes.size() && node == 0; ++i) disconnect(world.nodes[i]);
  if (world.exiles[static_cast<size_t>(node)]) return_from_exile(world, node);
}

void Model::disconnect(Node& node) {
  node.is_connected = false;
  node.reports.clear();
  node.orders.clear();
  node.old_report.reset();
  node.old_order.reset();
}

Process* Model::find(World& world, ProcessId id) {
  for (Process& process : world.processes) {
    if (process.id == id) return &process;
  }
  return nullptr;
}

void Model::act(World& world, int node, const NodeAgent::Actions& actions) const {
  Node& self = world.nodes[static_cast<size_t>(node)];
  const auto process_of = [&](int rank) { return self.agent->state().slots[static_cast<size_t>(rank)].report.process; };
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

void Model::send_report(Node& node) {
  node.reports.push_back(node.agent->report());
  if (node.reports.size() > 2) node.reports.erase(node.reports.begin());  // lost
}

void Model::send_orders(World& world) const {
  for (size_t node = 1; node < world.nodes.size(); ++node) {
    if (world.nodes[node].is_connected) send_order(world, world.nodes[node]);
  }
  deliver_order(world, 0, current_order(world));
}

Order Model::current_order(const World& world) const {
  Order order = world.coordinator->order();
  if (options_.bug == PlantedBug::kNoKill) order.kill.clear();
  return order;
}

void Model::send_order(const World& world, Node& node) const {
  node.orders.push_back(current_order(world));
  if (node.orders.size() > 2) node.orders.erase(node.orders.begin());
}

void Model::add_launchers(const World& world, std::vector<Move>& out) const {
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

bool Model::is_silent(const World& world, int node) {
  const Node& self = world.nodes[static_cast<size_t>(node)];
  if (!world.coordinator || !self.agent || !self.is_connected || node == 0) return false;
  const Coordinator::NodeSlot& slot = world.coordinator->state().nodes[static_cast<size_t>(node)];
  return !slot.connected && slot.launcher != 0 && slot.launcher == launcher_of(self);
}

void Model::deliver_report(World& world, NodeReport report) const {
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

void Model::deliver_order(World& world, int node, Order order) const {
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

void Model::add_messages(const World& world, std::vector<Move>& out) const {
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

}  // namespace oarlock::test::regroup
