#include "tests/support/model/regroup_moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace oarlock::test::regroup {

void Model::add_timers(const World& world, std::vector<Move>& out, bool is_fault) const {
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

void Model::add_shrink(const World& world, std::vector<Move>& out) const {
  if (!world.coordinator) return;
  const std::optional<SteadyTime> at = world.coordinator->leave_out_at();
  if (!at) return;
  Move move{"nodes that are missing are left out", world};
  pass_time(move.world, *at);
  out.push_back(std::move(move));
}

bool Model::pass_time(World& world, SteadyTime now) const {
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

void Model::add_time_outs(const World& world, std::vector<Move>& out) const {
  for (size_t i = 0; i < world.processes.size(); ++i) {
    const Process& process = world.processes[i];
    if (!acts(process) || !process.is_attached || !is_in_group(process)) continue;
    Move& move = out.emplace_back(Move{fmt::format("rank {} times out", process.rank), world});
    join(move.world, move.world.processes[i]);
  }
}

void Model::add_stall(const World& world, std::vector<Move>& out) const {
  const bool is_unnoticed = world.coordinator && world.coordinator->state().kind == OrderKind::kRun;
  if (!is_unnoticed || std::ranges::none_of(world.processes, &Process::is_stopped)) return;
  out.emplace_back(Move{"the job stalls", world}).world.has_ended = true;
}

void Model::add_faults(const World& world, std::vector<Move>& out) const {
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
      isolated.coordinator->disconnected(i, isolated.coordinator->state().nodes[static_cast<size_t>(i)].launcher, kNow);
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

void Model::check_completion(World& world) const {
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

void Model::check_end(World& world, const Order& order) const {
  if (order.success) return;
  const bool is_explained = order.reason.find("already finished") != std::string::npos ||
                            order.reason.find("all launchers that knew the group") != std::string::npos ||
                            order.reason.find("donor of the state was lost twice") != std::string::npos ||
                            world.charged_faults > options_.max_restarts;
  if (!is_explained)
    world.violation = fmt::format("the job ends after {} faults: {}", world.charged_faults, order.reason);
}

}  // namespace oarlock::test::regroup
