#include "recovery/node_agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "recovery/coordinator.h"

namespace oarlock::recovery {
namespace {

constexpr int kBitsOfCounter = 20;

}  // namespace

NodeAgent::NodeAgent(const NodeAgentOptions& options) : options_(options) {
  state_.slots.resize(static_cast<size_t>(options.ranks));
}

// The upper bits are those of the launcher, the lower ones a counter.
ProcessId NodeAgent::next_process() { return (options_.launcher << kBitsOfCounter) + ++state_.processes; }

NodeAgent::Actions NodeAgent::start() {
  Actions actions;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    RankReport& report = state_.slots[static_cast<size_t>(rank)].report;
    report.process = next_process();
    if (options_.policy == RestartPolicy::kRank) {
      actions.spawn.push_back(rank);
    } else {
      report.phase = RankPhase::kJoined;  // on behalf of a process that starts when the group is complete
    }
  }
  actions.report = true;
  return actions;
}

NodeAgent::Actions NodeAgent::joined(int rank, const JoinRequest& request) {
  RankReport& report = state_.slots[static_cast<size_t>(rank)].report;
  const bool is_alive = report.phase == RankPhase::kStarting || report.phase == RankPhase::kRunning;
  // A request that does not name the group of the process was sent before its last assignment.
  if (!is_alive || request.generation != report.generation) return {};
  if (request.generation >= 0 && request.fence >= request.generation) {
    Order replaced;
    replaced.kind = OrderKind::kEnd;
    replaced.generation = request.generation;
    replaced.reason = fmt::format(
        "another launcher of node rank 0 has taken the place of this one: its group of generation {} has "
        "claimed the checkpoint directory, and this one has generation {}",
        request.fence, request.generation);
    replaced.is_replaced = true;
    return end(replaced);
  }
  report.phase = RankPhase::kJoined;
  report.step = request.step;
  report.digest = request.digest;
  report.reason = request.reason;
  state_.fence = std::max(state_.fence, request.fence);
  return {.kill = {}, .stop = {}, .spawn = {}, .send = {}, .report = true};
}

void NodeAgent::abandon_start(int rank) {
  Slot& slot = state_.slots[static_cast<size_t>(rank)];
  slot.is_abandoned = slot.report.phase == RankPhase::kStarting;
}

NodeAgent::Actions NodeAgent::exited(int rank, int exit_code) {
  Slot& slot = state_.slots[static_cast<size_t>(rank)];
  Actions actions;
  const bool is_abandoned = std::exchange(slot.is_abandoned, false) && slot.report.phase == RankPhase::kStarting;
  if (is_abandoned && exit_code == 128 + SIGKILL && !state_.has_ended) {
    actions.spawn.push_back(rank);  // the report remains that of a process that starts
    return actions;
  }
  actions.report = true;
  slot.report = {.phase = exit_code == 0 ? RankPhase::kFinished : RankPhase::kExited,
                 .process = slot.report.process,
                 .generation = slot.report.generation,
                 .step = -1,
                 .digest = "",
                 .reason = "",
                 .exit_code = exit_code};
  if (std::exchange(slot.is_stopping, false)) {  // the stop caused the exit
    slot.report.phase = RankPhase::kExited;
    slot.report.exit_code = 0;
  }
  if (state_.forming >= 0) {
    Order again;
    again.generation = state_.forming;
    again.is_growth = state_.is_growth;
    again.respawn = state_.respawns;
    form(again, actions);
  } else if (options_.policy == RestartPolicy::kRank && slot.report.generation < 0 && !state_.has_ended &&
             can_start_again(slot.report) && slot.early_exits < kMaxStartFailures) {
    // The group runs without this node, and takes it in when its ranks wait for that.
    ++slot.early_exits;
    respawn(rank, actions);
  }
  return actions;
}

void NodeAgent::respawn(int rank, Actions& actions) {
  RankReport& report = state_.slots[static_cast<size_t>(rank)].report;
  const int exit_code = report.exit_code;
  report = {};
  report.exit_code = exit_code;
  report.process = next_process();
  actions.report = true;
  if (options_.policy == RestartPolicy::kRank) {
    actions.spawn.push_back(rank);
  } else {
    report.phase = RankPhase::kJoined;
  }
}

// Starts failed ranks, and requests the others to leave their group.
void NodeAgent::form(const Order& order, Actions& actions) {
  state_.forming = order.generation;
  state_.is_growth = order.is_growth;
  state_.respawns = order.respawn;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Slot& slot = state_.slots[static_cast<size_t>(rank)];
    RankReport& report = slot.report;
    const bool is_process = report.phase == RankPhase::kStarting || report.phase == RankPhase::kRunning ||
                            (report.phase == RankPhase::kJoined && options_.policy == RestartPolicy::kRank);
    if (is_process && std::ranges::find(order.kill, report.process) != order.kill.end()) actions.kill.push_back(rank);
    if (report.phase == RankPhase::kRunning && report.generation < order.generation) {
      if (options_.policy == RestartPolicy::kRank) {
        RankCommand leave;
        leave.kind = RankCommand::Kind::kLeave;
        leave.generation = report.generation;
        leave.is_growth = order.is_growth;
        leave.reason = order.reason;
        actions.send.push_back({rank, leave});
      } else if (!slot.is_stopping) {
        slot.is_stopping = true;
        actions.stop.push_back(rank);
      }
    }
    const bool restarts = (report.phase == RankPhase::kExited && (report.exit_code == 0 || can_start_again(report))) ||
                          (report.phase == RankPhase::kFinished && options_.policy == RestartPolicy::kGroup);
    if (restarts && order.respawn) respawn(rank, actions);
  }
}

// `member` is the rank in the group.
RankCommand NodeAgent::assignment(const Order& order, int member) const {
  RankCommand command;
  command.kind = RankCommand::Kind::kAssign;
  command.generation = order.generation;
  command.rank = member;
  command.world_size = static_cast<int>(order.members.size());
  command.donor = order.donor;
  command.step = order.step;
  command.store_host = options_.store_host;
  command.store_port = options_.store_port;
  command.store_prefix = fmt::format("oarlock/{}/{:x}", order.generation, order.coordinator);
  return command;
}

// Assigns the members of a complete group to it. A process that is not a member, because it replaced one, is not
// assigned; its report makes the coordinator form the next group.
void NodeAgent::run(const Order& order, Actions& actions) {
  state_.forming = -1;
  remember_group(order);
  const auto node = std::ranges::find(order.nodes, options_.node);
  if (node == order.nodes.end()) return;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Slot& slot = state_.slots[static_cast<size_t>(rank)];
    RankReport& report = slot.report;
    const auto member = static_cast<size_t>((node - order.nodes.begin()) * options_.ranks + rank);
    if (member >= order.members.size() || report.phase != RankPhase::kJoined ||
        report.process != order.members[member] || report.generation >= order.generation) {
      continue;
    }
    report.phase = RankPhase::kRunning;
    report.generation = order.generation;
    report.exit_code = 0;
    state_.member_of = order.generation;
    slot.early_exits = 0;
    actions.report = true;
    if (options_.policy == RestartPolicy::kRank) {
      actions.send.push_back({rank, assignment(order, static_cast<int>(member))});
    } else {
      actions.spawn.push_back(rank);
    }
  }
}

NodeAgent::Actions NodeAgent::received(const Order& order) {
  Actions actions;
  if (state_.has_ended || (order.coordinator == state_.coordinator && order.sequence <= state_.order_sequence))
    return actions;
  state_.coordinator = order.coordinator;
  state_.order_sequence = order.sequence;
  if (state_.first_coordinator == 0) state_.first_coordinator = order.coordinator;
  if (order.is_replaced) return end(order);
  if (is_outdated(order)) {
    actions.report = true;  // which contains the newest group
    return actions;
  }
  state_.is_group_known = true;
  state_.uncharged = std::max(state_.uncharged, order.uncharged);
  // A replaced launcher learns here which generations existed before.
  state_.generation =
      std::max(state_.generation, order.kind == OrderKind::kForm ? order.generation - 1 : order.generation);
  switch (order.kind) {
    case OrderKind::kForm:
      form(order, actions);
      actions.report = true;  // which acknowledges the order
      break;
    case OrderKind::kRun:
      run(order, actions);
      break;
    case OrderKind::kEnd:
      return end(order);
  }
  return actions;
}

// Returns whether the coordinator does not know the newest group yet, or was replaced before that group formed. Its
// decisions do not apply to the members of that group.
bool NodeAgent::is_outdated(const Order& order) const {
  return order.coordinator != state_.group_coordinator && order.generation <= state_.group;
}

void NodeAgent::remember_group(const Order& order) {
  state_.group = order.generation;
  state_.group_coordinator = order.coordinator;
  state_.launchers.clear();
  for (size_t i = 0; i < std::min(order.nodes.size(), order.launchers.size()); ++i) {
    state_.launchers.resize(static_cast<size_t>(order.nodes[i]) + 1);
    state_.launchers.back() = order.launchers[i];
    if (order.launchers[i] == options_.launcher) state_.member_of = order.generation;
  }
}

NodeAgent::Actions NodeAgent::end(const Order& order) {
  Actions actions;
  if (state_.has_ended) return actions;
  state_.has_ended = true;
  state_.forming = -1;
  actions.ended = order;
  return actions;
}

NodeAgent::Actions NodeAgent::stop() {
  state_.is_stopping = true;
  return {.kill = {}, .stop = {}, .spawn = {}, .send = {}, .report = true};
}

NodeReport NodeAgent::report() {
  NodeReport report;
  report.node = options_.node;
  report.launcher = options_.launcher;
  report.sequence = ++state_.reports;
  report.generation = state_.generation;
  report.uncharged = state_.uncharged;
  report.coordinator = state_.coordinator;
  report.order_sequence = state_.order_sequence;
  report.first_coordinator = state_.first_coordinator;
  report.is_stopping = state_.is_stopping;
  report.member_of = state_.member_of;
  report.fence = state_.fence;
  if (!state_.is_group_known) {
    report.group = state_.group;
    report.launchers = state_.launchers;
  }
  for (const Slot& slot : state_.slots) report.ranks.push_back(slot.report);
  return report;
}

}  // namespace oarlock::recovery
