#include "recovery/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/restart_backoff.h"
#include "common/text.h"

// The decisions of the coordinator: when a group forms, which one forms, and when none can. coordinator.cc has the
// events after which it decides.
namespace oarlock::recovery {

std::string Coordinator::describe_stop(int node) {
  return fmt::format("the launcher of node rank {} was requested to stop, and nothing replaces it", node);
}

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
