#include "recovery/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/restart_backoff.h"
#include "common/text.h"

namespace oarlock::recovery {
namespace {

std::string describe_stop(int node) {
  return fmt::format("the launcher of node rank {} was requested to stop, and nothing replaces it", node);
}

}  // namespace

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

// ---- The group -----------------------------------------------------------------------------------------------------

// Returns whether the member of this rank is no longer in the group that runs.
bool Coordinator::has_left(int rank) const {
  const RankReport& report = state_.ranks[static_cast<size_t>(rank)].report;
  if (report.process != member(rank)) return true;
  switch (report.phase) {
    case RankPhase::kExited:
      return true;
    case RankPhase::kJoined:
      return report.generation >= state_.generation;  // otherwise, its assignment is on its way
    case RankPhase::kRunning:
      return report.generation != state_.generation;
    case RankPhase::kStarting:
    case RankPhase::kFinished:
      return false;
  }
  return true;
}

// Sets the reason of the regroup to the first rank that ended by itself. Until one is known, it is a rank that left the
// group, usually because it lost a connection to that one.
void Coordinator::find_cause() {
  for (int rank = 0; rank < world_size() && !state_.has_cause; ++rank) {
    const RankReport& report = state_.ranks[static_cast<size_t>(rank)].report;
    if (!is_expected(rank) || report.exit_code == 0 || report.exit_code == to_int(ExitCode::kPeerLost)) continue;
    state_.has_cause = true;
    state_.cause = rank;
    state_.reason = fmt::format("rank {} ended with exit code {}", rank, report.exit_code);
  }
  for (int rank = 0; rank < world_size() && state_.reason.empty(); ++rank) {
    if (!is_expected(rank) || !has_left(rank)) continue;
    const RankReport& report = state_.ranks[static_cast<size_t>(rank)].report;
    std::string why = report.reason.empty() ? "its process was replaced" : report.reason;
    if (report.exit_code == to_int(ExitCode::kPeerLost)) why = "it ended, because another rank was lost";
    state_.reason = fmt::format("rank {} left the group: {}", rank, why);
    state_.cause = rank;
  }
}

void Coordinator::begin_forming(SteadyTime now, bool is_growth) {
  state_.reason.clear();
  state_.cause = -1;
  state_.has_cause = false;
  find_cause();
  for (int node = 0; node < options_.nodes; ++node) {
    if (!is_ready(node)) continue;
    if (state_.reason.empty()) state_.reason = fmt::format("node rank {} joins the group", node);
    state_.nodes[static_cast<size_t>(node)].is_expected = true;
  }
  state_.is_growth = is_growth;
  if (is_growth) ++state_.uncharged;
  state_.kind = OrderKind::kForm;
  for (int node = 0; node < options_.nodes; ++node) {
    if (!state_.nodes[static_cast<size_t>(node)].connected) forget_reports(node);
  }
  state_.kill.clear();
  state_.leave_at = now + options_.leave_timeout;
  state_.form_at = now + options_.form_timeout;
  state_.formed_at = now;
  for (RankSlot& slot : state_.ranks) slot.start_failures = 0;
  const bool was_short = !is_growth && state_.began_at && now - *state_.began_at < kBackoffResetAfter;
  state_.short_generations = was_short ? state_.short_generations + 1 : 0;
  if (const auto delay = restart_backoff(options_.backoff, state_.short_generations); delay.count() > 0) {
    state_.respawn_at = now + delay;
    *state_.form_at += delay;
  }
}

// Returns why the group that forms can never be complete.
std::optional<std::string> Coordinator::find_obstacle() const {
  if (const int64_t restarts = state_.generation - state_.uncharged; restarts > 0 && restarts > options_.max_restarts) {
    return options_.max_restarts == 0
               ? state_.reason
               : fmt::format("{}; {} used up", state_.reason,
                             options_.max_restarts == 1 ? "the only restart is"
                                                        : fmt::format("all {} restarts are", options_.max_restarts));
  }
  for (int rank = 0; rank < world_size(); ++rank) {
    const RankSlot& slot = state_.ranks[static_cast<size_t>(rank)];
    const RankReport& report = slot.report;
    if (!is_expected(rank)) continue;
    const bool has_failed = report.phase == RankPhase::kExited && report.exit_code != 0;
    if (has_failed && !can_start_again(report)) {
      return fmt::format("rank {} ended with exit code {}, after which it must not start again", rank,
                         report.exit_code);
    }
    if (report.phase == RankPhase::kFinished && report.generation < 0 && !options_.restarts_finished) {
      return fmt::format(
          "rank {} ended with exit code 0 before it joined the group: its program does not regroup; use "
          "--restart-policy group",
          rank);
    }
    // While the group grows, the others are about to finish, too.
    if (report.phase == RankPhase::kFinished && !options_.restarts_finished && !state_.is_growth) {
      return fmt::format("{}; rank {} had already finished", state_.reason, rank);
    }
    if (slot.start_failures > kMaxStartFailures) {
      return fmt::format("rank {} failed {} times before it joined", rank, slot.start_failures);
    }
  }
  for (int node = 0; node < options_.nodes; ++node) {
    const NodeSlot& slot = state_.nodes[static_cast<size_t>(node)];
    if (slot.is_expected && slot.is_stopping && !options_.replaces_nodes) return describe_stop(node);
  }
  const bool is_connected =
      std::ranges::all_of(state_.nodes, [](const NodeSlot& node) { return node.connected || !node.is_expected; });
  if (options_.is_replacement && is_connected && state_.newest_seen < 0)
    return "all launchers that knew the group were replaced";
  if (state_.lost_handovers >= 2) return "the donor of the state was lost twice before all ranks had its state";
  return std::nullopt;
}

void Coordinator::decide(SteadyTime now) {
  if (state_.kind == OrderKind::kEnd) return;
  if (is_in_phase(RankPhase::kFinished) || has_group_finished()) return end("all ranks finished", true);
  if (state_.kind == OrderKind::kRun) {
    bool is_complete = true;
    bool is_ending = false;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (!is_expected(rank)) continue;
      is_complete = is_complete && !has_left(rank);
      is_ending = is_ending || state_.ranks[static_cast<size_t>(rank)].report.phase == RankPhase::kFinished;
    }
    bool is_growth = false;
    for (int node = 0; node < options_.nodes; ++node) is_growth = is_growth || is_ready(node);
    // A node that is not connected could not leave its group.
    const bool can_grow = !is_ending && std::ranges::all_of(state_.nodes, [](const NodeSlot& node) {
      return node.connected || !node.is_expected;
    });
    is_growth = is_growth && is_complete && can_grow;
    if (is_complete && !is_growth) return;
    begin_forming(now, is_growth);
    state_.form_sequence = ++state_.sequence;
    for (NodeSlot& node : state_.nodes) node.acknowledged = false;
  }
  if (state_.newest_seen >= 0 && !state_.members.empty()) find_cause();
  if (!state_.form_at) state_.form_at = now + options_.form_timeout;
  if (!state_.formed_at) state_.formed_at = now;
  // A new coordinator learns here that a group existed before.
  const int64_t newest = state_.newest_seen < 0 ? -1 : std::max(state_.newest_seen, state_.fence);
  if (const int64_t next = newest + 1; next > state_.generation) {
    state_.generation = next;
    if (state_.reason.empty()) state_.reason = "the launcher of node rank 0 was replaced";
    if (!state_.leave_at) state_.leave_at = now + options_.leave_timeout;
    ++state_.sequence;
  }
  if (std::optional<std::string> obstacle = find_obstacle()) return end(std::move(*obstacle));
  // Only a launcher that has received this order cannot assign a rank to an earlier group any more.
  const bool is_acknowledged = std::ranges::all_of(
      state_.nodes, [](const NodeSlot& node) { return !node.is_expected || (node.connected && node.acknowledged); });
  if (is_acknowledged && is_in_phase(RankPhase::kJoined)) complete(now);
}

// Counts groups whose donor was lost while a receiver had not yet taken over its state.
void Coordinator::count_lost_handover() {
  if (state_.donor < 0) {
    state_.lost_handovers = 0;
    return;
  }
  const auto donor = static_cast<size_t>(rank_of_member(state_.donor));
  const bool donor_lost = state_.ranks[donor].report.process != state_.members[static_cast<size_t>(state_.donor)];
  const bool receiver_waits = std::ranges::any_of(state_.ranks, [this](const RankSlot& slot) {
    return std::ranges::find(state_.receivers, slot.report.process) != state_.receivers.end() &&
           slot.report.step < state_.step;
  });
  state_.lost_handovers = donor_lost && receiver_waits ? state_.lost_handovers + 1 : 0;
}

void Coordinator::complete(SteadyTime now) {
  count_lost_handover();
  if (std::optional<std::string> obstacle = find_obstacle()) return end(std::move(*obstacle));
  for (int node = 0; node < options_.nodes; ++node) {
    NodeSlot& slot = state_.nodes[static_cast<size_t>(node)];
    slot.is_expected = slot.is_expected || (slot.acknowledged && is_ready(node));
  }
  std::vector<int> ranks;  // of the group
  for (int rank = 0; rank < world_size(); ++rank) {
    if (is_expected(rank)) ranks.push_back(rank);
  }
  const auto report_of = [this](int rank) -> const RankReport& {
    return state_.ranks[static_cast<size_t>(rank)].report;
  };
  const auto newest = std::ranges::max_element(ranks, {}, [&](int rank) { return report_of(rank).step; });
  const int64_t step = report_of(*newest).step;
  const std::string digest = report_of(*newest).digest;
  state_.donor = step < 0 ? -1 : static_cast<int>(newest - ranks.begin());
  state_.step = step;
  state_.group.clear();
  state_.members.clear();
  state_.receivers.clear();
  for (const int rank : ranks) {
    const RankReport& report = report_of(rank);
    if (step >= 0 && report.step == step && !digest.empty() && !report.digest.empty() && report.digest != digest)
      return end(fmt::format("ranks {} and {} have different states after step {}", *newest, rank, step));
    if (rank % options_.ranks_per_node == 0) state_.group.push_back(rank / options_.ranks_per_node);
    state_.members.push_back(report.process);
    if (report.step < step) state_.receivers.push_back(report.process);
  }
  if (state_.newest_seen < 0 && state_.fence >= 0) {
    // The first group is not a restart, although an earlier launch of this attempt has used generations.
    state_.generation = state_.fence + 1;
    state_.uncharged = state_.generation;
  }
  state_.known = {.generation = state_.generation,
                  .launchers = std::vector<uint64_t>(static_cast<size_t>(options_.nodes))};
  for (const int node : state_.group)
    state_.known.launchers[static_cast<size_t>(node)] = state_.nodes[static_cast<size_t>(node)].launcher;
  state_.kind = OrderKind::kRun;
  state_.newest_seen = std::max(state_.newest_seen, state_.generation);
  state_.began_at = now;
  state_.leave_at.reset();
  state_.form_at.reset();
  state_.formed_at.reset();
  state_.respawn_at.reset();
  state_.kill.clear();
  ++state_.sequence;
}

void Coordinator::end(std::string_view reason, bool success) {
  state_.kind = OrderKind::kEnd;
  state_.reason = shortened(reason, kMaxTextLength);
  state_.success = success;
  state_.leave_at.reset();
  state_.form_at.reset();
  state_.respawn_at.reset();
  ++state_.sequence;
}

}  // namespace oarlock::recovery
