#include "recovery/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace oarlock::recovery {
bool is_recoverable_in_place(int exit_code) {
  if (exit_code == to_int(ExitCode::kPeerLost)) return true;
  return exit_code != 0 && (exit_code < to_int(ExitCode::kUsage) || exit_code > to_int(ExitCode::kDeviceFailed)) &&
         exit_code != 128 + 2 /* SIGINT */ && exit_code != 128 + 15 /* SIGTERM */;
}

bool can_start_again(const RankReport& ended) {
  const bool is_temporary = ended.exit_code == to_int(ExitCode::kTempFail) && ended.generation < 0;
  return is_temporary || is_recoverable_in_place(ended.exit_code);
}

Coordinator::Coordinator(const CoordinatorOptions& options, uint64_t id) : options_(options), id_(id) {
  state_.ranks.resize(static_cast<size_t>(world_size()));
  state_.nodes.resize(static_cast<size_t>(options.nodes));
  state_.sequence = 1;
  state_.form_sequence = 1;
}

Order Coordinator::order() const {
  Order order;
  order.coordinator = id_;
  order.sequence = state_.sequence;
  order.kind = state_.kind;
  order.generation = state_.generation;
  order.uncharged = state_.uncharged;
  order.reason = state_.reason;
  order.success = state_.success;
  order.is_replaced = state_.is_replaced;
  if (state_.kind == OrderKind::kForm) {
    order.is_growth = state_.is_growth;
    order.respawn = !state_.respawn_at;
    order.kill = state_.kill;
  }
  if (state_.kind == OrderKind::kRun) {
    order.nodes = state_.group;
    for (const int node : state_.group) order.launchers.push_back(state_.known.launchers[static_cast<size_t>(node)]);
    order.members = state_.members;
    order.donor = state_.donor;
    order.step = state_.step;
  }
  return order;
}

Order Coordinator::order_for_retired() const {
  Order order;
  order.coordinator = id_;
  order.sequence = std::numeric_limits<uint64_t>::max();
  order.kind = OrderKind::kEnd;
  order.generation = state_.generation;
  order.reason = "another launcher has taken the place of this one, or the group continues without its node";
  order.is_replaced = true;
  return order;
}

std::optional<SteadyTime> Coordinator::deadline() const {
  std::optional<SteadyTime> earliest;
  for (const auto& at : {state_.leave_at, state_.form_at, state_.respawn_at, leave_out_at()}) {
    if (at && (!earliest || *at < *earliest)) earliest = at;
  }
  return earliest;
}

bool Coordinator::received(const NodeReport& report, SteadyTime now) {
  if (report.node < 0 || report.node >= options_.nodes ||
      report.ranks.size() != static_cast<size_t>(options_.ranks_per_node) || report.launcher == 0) {
    return false;
  }
  NodeSlot& node = state_.nodes[static_cast<size_t>(report.node)];
  if (is_retired(report.launcher) || (node.launcher == report.launcher && report.sequence <= node.sequence))
    return false;
  const uint64_t before = state_.sequence;
  if (!learn(report)) return true;
  if (!is_admitted(report)) {
    state_.retired.push_back(report.launcher);
    decide(now);
    return state_.sequence != before;
  }
  if (node.launcher != report.launcher) {
    if (node.launcher != 0) state_.retired.push_back(node.launcher);
    node.is_new = report.first_coordinator == 0 || report.first_coordinator == id_;
  }
  node.member_of = report.member_of;
  node.launcher = report.launcher;
  node.sequence = report.sequence;
  node.connected = true;
  node.acknowledged = report.coordinator == id_ && report.order_sequence >= state_.form_sequence;
  node.is_stopping = report.is_stopping;
  for (int i = 0; i < options_.ranks_per_node; ++i) {
    RankSlot& slot = state_.ranks[static_cast<size_t>(report.node * options_.ranks_per_node + i)];
    const RankReport& next = report.ranks[static_cast<size_t>(i)];
    const bool is_replaced = slot.report.process != 0 && slot.report.process != next.process;
    if (state_.kind == OrderKind::kForm && is_replaced) ++slot.start_failures;
    slot.report = next;
  }
  state_.newest_seen = std::max(state_.newest_seen, report.generation);
  state_.uncharged = std::max(state_.uncharged, report.uncharged);
  decide(now);
  return state_.sequence != before;
}

// ---- The launchers of the group ------------------------------------------------------------------------------------

// Updates what is known about the groups of this coordinator's predecessors. Returns false, and ends this launcher, if
// there was a later group than its own: another coordinator has taken its place.
bool Coordinator::learn(const NodeReport& report) {
  const bool is_newer = !report.launchers.empty() && report.group > state_.known.generation;
  const bool is_fenced = report.fence > state_.fence;
  const int64_t newest = std::max(report.group, report.fence);
  if (!state_.members.empty() && newest > state_.known.generation && state_.kind != OrderKind::kEnd) {
    end(
        fmt::format("another launcher of node rank 0 has taken the place of this one: it has formed the group of "
                    "generation {}, and this one that of generation {}",
                    newest, state_.known.generation));
    state_.is_replaced = true;
    return false;
  }
  state_.fence = std::max(state_.fence, report.fence);
  if (is_newer) {
    state_.known.generation = report.group;
    state_.known.launchers = report.launchers;
    state_.known.launchers.resize(state_.nodes.size());
  }
  if (is_newer || is_fenced) retire_former_members();
  return true;
}

// Returns whether the launcher was in an earlier group, but not in the newest one. If the members of the newest one are
// not known, because only the fence proves that it existed, these know it themselves.
bool Coordinator::is_former_member(int node, uint64_t launcher, int64_t member_of) const {
  if (member_of < 0 || member_of > std::max(state_.known.generation, state_.fence)) return false;
  if (state_.fence > state_.known.generation) return member_of < state_.fence;
  return state_.known.generation >= 0 && state_.known.launchers[static_cast<size_t>(node)] != launcher;
}

// Returns whether the launcher belongs to the group, or may take the place of the one that reports for its node. Only a
// launcher that has met no other coordinator is known to be newer than a member of the newest group. One that has met
// another, and was in no group, may have been replaced meanwhile.
bool Coordinator::is_admitted(const NodeReport& report) const {
  const NodeSlot& slot = state_.nodes[static_cast<size_t>(report.node)];
  if (slot.launcher == report.launcher) return true;
  if (is_former_member(report.node, report.launcher, report.member_of)) return false;
  const bool is_new = report.first_coordinator == 0 || report.first_coordinator == id_;
  return slot.launcher == 0 || is_new || (report.member_of >= 0 && slot.member_of < 0 && !slot.is_new);
}

void Coordinator::retire_former_members() {
  for (int i = 0; i < options_.nodes; ++i) {
    NodeSlot& slot = state_.nodes[static_cast<size_t>(i)];
    if (slot.launcher == 0 || !is_former_member(i, slot.launcher, slot.member_of)) continue;
    state_.retired.push_back(slot.launcher);
    slot = {.is_expected = slot.is_expected};
    forget_reports(i);
  }
}

bool Coordinator::is_retired(uint64_t launcher) const {
  return std::ranges::find(state_.retired, launcher) != state_.retired.end();
}

bool Coordinator::disconnected(int node, uint64_t launcher, SteadyTime now, std::optional<SteadyTime> since) {
  if (node < 0 || node >= options_.nodes)
    return false;  // a launcher with other options; received() has ignored it, too
  NodeSlot& slot = state_.nodes[static_cast<size_t>(node)];
  if (slot.launcher != launcher) return false;
  // The end of a connection over which nothing arrived any more does not count again.
  if (slot.connected) slot.lost_at = since.value_or(now);
  slot.connected = false;
  if (slot.is_stopping && slot.is_expected && !options_.replaces_nodes && state_.kind != OrderKind::kEnd) {
    end(describe_stop(node));
    return true;
  }
  if (state_.kind != OrderKind::kForm) return false;
  forget_reports(node);
  const bool is_member = state_.group.empty() || std::ranges::find(state_.group, node) != state_.group.end();
  if (is_member || !slot.is_expected) return false;
  // It has never been in the group, which does not wait for it.
  slot.is_expected = false;
  const uint64_t before = state_.sequence;
  decide(now);
  return state_.sequence != before;
}

bool Coordinator::stop() {
  if (state_.kind == OrderKind::kEnd || options_.replaces_nodes) return false;
  end(describe_stop(0));
  return true;
}

// Whether the ranks of a node that is not connected still exist is unknown. A group that forms waits until they are
// reported again. A group that runs detects the loss of a rank itself.
void Coordinator::forget_reports(int node) {
  for (int i = 0; i < options_.ranks_per_node; ++i)
    state_.ranks[static_cast<size_t>(node * options_.ranks_per_node + i)].report = {};
}

bool Coordinator::time_passed(SteadyTime now) {
  const uint64_t before = state_.sequence;
  if (state_.form_at && *state_.form_at <= now) {
    std::string missing;
    bool never_joins = false;  // a process runs that may be of a program that does not regroup
    for (int rank = 0; rank < world_size(); ++rank) {
      const RankReport& report = state_.ranks[static_cast<size_t>(rank)].report;
      if (!is_expected(rank) || report.phase == RankPhase::kJoined) continue;
      const bool is_running = report.phase == RankPhase::kStarting && report.process != 0;
      never_joins = never_joins || (is_running && state_.newest_seen < 0 && !options_.restarts_finished);
      if (missing.size() < 60) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
    }
    end(fmt::format("ranks {} did not join in time{}", missing,
                    never_joins ? "; if their program does not regroup, use --restart-policy group" : ""));
    return true;
  }
  if (const auto at = leave_out_at(); at && *at <= now) leave_out(now);
  if (state_.leave_at && *state_.leave_at <= now && state_.is_growth) {
    // A step or an evaluation takes long, or a rank hangs.
    state_.is_growth = false;
    state_.leave_at = now + options_.leave_timeout;
    ++state_.sequence;
    decide(now);
  } else if (state_.leave_at && *state_.leave_at <= now) {
    state_.leave_at = now + options_.leave_timeout;
    for (const RankSlot& slot : state_.ranks) {
      const bool is_known = std::ranges::find(state_.kill, slot.report.process) != state_.kill.end();
      if (slot.report.phase != RankPhase::kRunning || is_known) continue;
      state_.kill.push_back(slot.report.process);
      state_.sequence += state_.sequence == before ? 1 : 0;
    }
  }
  if (state_.respawn_at && *state_.respawn_at <= now) {
    state_.respawn_at.reset();
    state_.sequence += state_.sequence == before ? 1 : 0;
  }
  return state_.sequence != before;
}

// ---- Another number of nodes ---------------------------------------------------------------------------------------

std::optional<SteadyTime> Coordinator::leave_out_at() const {
  // The first group has all nodes, and a replaced coordinator needs to know a generation first.
  if (!options_.min_nodes || state_.kind != OrderKind::kForm || state_.generation == 0 || !state_.formed_at)
    return std::nullopt;
  std::optional<SteadyTime> latest;
  int left = 0;
  for (const NodeSlot& node : state_.nodes) {
    if (!node.is_expected) continue;
    left += node.connected ? 1 : 0;
    if (!node.connected)
      latest =
          std::max({latest.value_or(*state_.formed_at), *state_.formed_at, node.lost_at.value_or(*state_.formed_at)});
  }
  if (!latest || left < *options_.min_nodes || !state_.nodes[0].connected) return std::nullopt;
  return *latest + options_.shrink_after;
}

// The new group repeats steps that the ranks of these nodes may have completed already, with another number of ranks,
// so that their state must never be used again.
void Coordinator::leave_out(SteadyTime now) {
  for (int i = 0; i < options_.nodes; ++i) {
    NodeSlot& node = state_.nodes[static_cast<size_t>(i)];
    if (!node.is_expected || node.connected) continue;
    if (node.launcher != 0) state_.retired.push_back(node.launcher);
    node = {};
    node.is_expected = false;
    forget_reports(i);
  }
  decide(now);
}

// Returns whether all ranks of a node outside of the group wait to join it.
bool Coordinator::is_ready(int node) const {
  const NodeSlot& slot = state_.nodes[static_cast<size_t>(node)];
  if (slot.is_expected || !slot.connected || slot.is_stopping) return false;
  for (int i = 0; i < options_.ranks_per_node; ++i) {
    const auto rank = static_cast<size_t>(node * options_.ranks_per_node + i);
    if (state_.ranks[rank].report.phase != RankPhase::kJoined) return false;
  }
  return true;
}

// Returns the process that has this rank's place in the last complete group.
std::optional<ProcessId> Coordinator::member(int rank) const {
  const auto node = std::ranges::find(state_.group, rank / options_.ranks_per_node);
  if (node == state_.group.end()) return std::nullopt;
  const auto first = static_cast<size_t>(node - state_.group.begin()) * static_cast<size_t>(options_.ranks_per_node);
  return state_.members[first + static_cast<size_t>(rank % options_.ranks_per_node)];
}

// The inverse of member(): the rank among all nodes.
int Coordinator::rank_of_member(int member) const {
  return state_.group[static_cast<size_t>(member / options_.ranks_per_node)] * options_.ranks_per_node +
         member % options_.ranks_per_node;
}

// Returns whether all ranks that the group consists of, or waits for, are in this phase.
bool Coordinator::is_in_phase(RankPhase phase) const {
  for (int rank = 0; rank < world_size(); ++rank) {
    if (is_expected(rank) && state_.ranks[static_cast<size_t>(rank)].report.phase != phase) return false;
  }
  return true;
}

// Returns whether the members of the last complete group have finished, instead of leaving it for a larger one.
bool Coordinator::has_group_finished() const {
  if (state_.kind != OrderKind::kForm || !state_.is_growth) return false;
  for (int rank = 0; rank < world_size(); ++rank) {
    const std::optional<ProcessId> process = member(rank);
    const RankReport& report = state_.ranks[static_cast<size_t>(rank)].report;
    if (process && (report.process != *process || report.phase != RankPhase::kFinished)) return false;
  }
  return true;
}

}  // namespace oarlock::recovery
