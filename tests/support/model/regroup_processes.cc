#include "tests/support/model/regroup_moves.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace oarlock::test::regroup {
namespace {

constexpr int kSigkill = 137;

}  // namespace

bool Model::is_in_group(const Process& process) {
  return process.activity == Activity::kMeets || process.activity == Activity::kReceives ||
         process.activity == Activity::kTrains || process.activity == Activity::kReduces;
}

bool Model::lost_peer(const World& world, const Process& process) const {
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

void Model::join(World& world, Process& process, int64_t fence) const {
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

void Model::receive(World& world, Process& process, const RankCommand& command) const {
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

void Model::meet(World& world, const std::string& group) const {
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

void Model::check_launcher(World& world, const Process& process) const {
  std::vector<uint64_t>& launchers = world.in_training[static_cast<size_t>(node_of(process.rank))];
  const uint64_t launcher = launcher_of(process);
  if (!launchers.empty() && launchers.back() == launcher) return;
  if (std::ranges::find(launchers, launcher) != launchers.end())
    world.violation = fmt::format("{} contains rank {} of a launcher that was replaced", process.group, process.rank);
  launchers.push_back(launcher);
}

bool Model::claim_fence(World& world, Process& process) const {
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

void Model::enter_training(World& world, Process& process) const {
  process.activity = Activity::kTrains;
  if (process.rank != 0 || !options_.checkpoints || world.fence_owner == process.id) return;
  world.violation = fmt::format("rank 0 of generation {} is behind the fence of {}", process.generation, world.fence);
}

void Model::add_commands(const World& world, std::vector<Move>& out) const {
  for (size_t i = 0; i < world.processes.size() && out.empty(); ++i) {
    const Process& process = world.processes[i];
    if (!acts(process) || process.inbox.empty()) continue;
    Move& move = out.emplace_back(Move{fmt::format("rank {} receives a command", process.rank), world});
    Process& self = move.world.processes[i];
    receive_next(move.world, self);
  }
}

void Model::receive_next(World& world, Process& process) const {
  const RankCommand command = process.inbox.front();
  process.inbox.erase(process.inbox.begin());
  receive(world, process, command);
}

void Model::add_processes(const World& world, std::vector<Move>& out) const {
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
      if (report.process == process.id && report.phase != RankPhase::kExited && report.phase != RankPhase::kFinished) {
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
void Model::add_reception(const World& world, const Process& process, const Add& add) const {
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

template <typename Add>
void Model::add_reduction(const World& world, const Process& process, const Add& add) const {
  const auto found = world.contributions.find({process.group, process.step + 1});
  if (found == world.contributions.end() || found->second.size() != static_cast<size_t>(process.group_size)) return;
  auto [next, self] = add(fmt::format("completes step {}", process.step + 1));
  for (const auto& [rank, state] : found->second) {
    if (state.first != process.step || state.first < 0)
      next.violation = fmt::format("rank {} trains from step {}, and rank {} from step {}", process.rank, process.step,
                                   rank, state.first);
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

bool Model::is_everyone_done(const World& world, const Process& process) const {
  const auto members = world.met.find(process.group);
  return members != world.met.end() && std::ranges::all_of(members->second, [&](ProcessId id) {
           return std::ranges::any_of(world.processes, [&](const Process& other) {
             return other.id == id && (other.has_finished || (other.is_alive && other.group == process.group &&
                                                              other.step == options_.steps));
           });
         });
}

}  // namespace oarlock::test::regroup
