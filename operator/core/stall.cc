#include "operator/core/stall.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "common/text.h"
#include "operator/core/desired.h"
#include "operator/core/progress.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::Phase;

// Delay between two checks of a stalled job whose rank 0 does not answer.
constexpr std::chrono::seconds kStallRequeue{30};

// Returns the time from which the next step of a running job is awaited: that of the last one, or of the start.
std::optional<SystemTime> awaited_since(const api::Status& status) {
  if (!is_running(status.phase) || !status.progress) return std::nullopt;
  const std::optional<SystemTime>& last = status.progress->last_step_time;
  return last ? last : start_of_processes(status);
}

// Returns whether rank 0 has been polled since the job was late, or has ended. After a start, its launcher must also
// have answered: a program that cannot be reached may have reported its steps in another way.
bool was_polled_late(const Observed& observed, const Membership& members, const api::Status& status, SystemTime late) {
  if (!was_polled_since(observed, members, late)) return false;
  return status.progress->last_step_time || progress_pod(members) == nullptr || observed.last_poll->reachable;
}

std::string state_of_rank_0(const Observed& observed, const Membership& members, const api::Status& status) {
  const int64_t step = status.progress->step;
  const Pod* first = members.current.empty() ? nullptr : members.current.front();
  if (is_recorded_finished(members, 0) || (first != nullptr && has_ended(*first)))
    return fmt::format("rank 0 has ended, at step {}", step);
  const bool answers = observed.last_poll && observed.last_poll->answered;
  const bool reachable = observed.last_poll && observed.last_poll->reachable;
  if (!answers || !has_progress(observed, status))
    return fmt::format("rank 0, last at step {}, {}", step, reachable ? "has not reported since" : "does not respond");
  return fmt::format("rank 0 is in phase {} at step {}", sanitize_line(observed.progress->phase, 60), step);
}

// A rank that may hold the others up. Smaller ones are more likely to.
struct Laggard {
  int order = 0;  // 0: its node does not answer; 1: its process is stopped; 2: its step is below that of others
  int64_t step = 0;
  int rank = 0;
  const StallReport* node = nullptr;
  const RankActivity* activity = nullptr;

  auto key() const { return std::tuple(order, step, rank); }
};

std::vector<Laggard> find_laggards(const Observed& observed) {
  std::vector<Laggard> out;
  if (!observed.stall_reports) return out;
  const int per_node = std::max(observed.job.spec.processes_per_node, 1);
  int64_t newest = 0;
  for (const StallReport& node : *observed.stall_reports) {
    for (const RankActivity& rank : node.ranks) newest = std::max(newest, rank.step.value_or(0));
  }
  for (const StallReport& node : *observed.stall_reports) {
    if (!node.answered) out.push_back({.order = 0, .rank = node.node_rank * per_node, .node = &node});
    for (const RankActivity& rank : node.ranks) {
      const int64_t step = rank.step.value_or(newest);
      if (rank.state == "stopped" || step < newest)
        out.push_back({rank.state == "stopped" ? 1 : 2, step, rank.rank, &node, &rank});
    }
  }
  return out;
}

std::string describe_process(const RankActivity& rank) {
  if (rank.state.empty()) return "";
  std::string out = rank.program.empty() ? fmt::format("its process is {}", rank.state)
                                         : fmt::format("its process {} is {}", rank.program, rank.state);
  if (!rank.wait_channel.empty()) out += fmt::format(" in {}", rank.wait_channel);
  return "; " + out;
}

// Names the rank that the others wait for, as far as the reports show it: one on a node that does not answer, one whose
// process is stopped, or the one with the smallest step; with its node, and what it is doing. Empty if no rank differs.
std::string describe_laggard(const Observed& observed, const Membership& members) {
  const std::vector<Laggard> all = find_laggards(observed);
  if (all.empty()) return "";
  const Laggard& first = *std::ranges::min_element(all, {}, &Laggard::key);
  const auto node_rank = static_cast<size_t>(first.node->node_rank);
  const Pod* pod = node_rank < members.current.size() ? members.current[node_rank] : nullptr;
  const std::string place = pod == nullptr || pod->node_name.empty() ? "" : fmt::format(" on node {}", pod->node_name);
  if (first.activity == nullptr)
    return fmt::format("pod {}{} does not respond",
                       pod_name(observed.job, observed.job.status.attempt, first.node->node_rank), place);
  std::string out = fmt::format("rank {}{}", first.rank, place);
  if (first.activity->step) out += fmt::format(" is at step {}", *first.activity->step);
  return out + describe_process(*first.activity);
}

}  // namespace

std::optional<SystemTime> start_of_processes(const api::Status& status) {
  if (!status.progress || status.progress->step <= 0) return std::nullopt;
  std::optional<SystemTime> start;
  for (const Phase earlier : {Phase::kPending, Phase::kRestarting}) {
    const api::Condition* condition = find_condition(status, earlier);
    if (condition != nullptr && !condition->status)
      start = std::max(start, std::optional(condition->last_transition_time));
  }
  const auto& restarts = status.in_pod_restarts;
  if (restarts && restarts->attempt == status.attempt) start = std::max(start, restarts->last_time);
  return start;
}

std::optional<SystemTime> stall_to_explain(const Observed& observed) {
  const api::StallPolicy& policy = observed.job.spec.stall_policy;
  const api::Status& stored = observed.job.status;
  // Most jobs step. The stored status may be older than the first step that was received.
  SystemTime earliest = stall_time(policy, stored).value_or(SystemTime::max());
  if (observed.step_received_at)
    earliest = std::min<SystemTime>(earliest, std::chrono::floor<std::chrono::seconds>(*observed.step_received_at) +
                                                  std::chrono::seconds(policy.timeout_seconds));
  if (stored.phase != Phase::kRunning || observed.now < earliest) return std::nullopt;
  const Membership members = classify_objects(observed);
  const api::Status status = refresh_status(observed, members);
  const std::optional<SystemTime> late = stall_time(policy, status);
  if (!late || observed.now < *late || !was_polled_late(observed, members, status, *late)) return std::nullopt;
  return awaited_since(status);
}

std::optional<SystemTime> stall_time(const api::StallPolicy& policy, const api::Status& status) {
  const std::optional<SystemTime> since = awaited_since(status);
  if (!since) return std::nullopt;
  const bool has_stepped = status.progress->last_step_time.has_value();
  return *since + std::chrono::seconds(has_stepped ? policy.timeout_seconds : policy.start_timeout_seconds);
}

void update_stalled_phase(const Observed& observed, const Membership& members, api::Status& status) {
  const std::optional<SystemTime> late = stall_time(observed.job.spec.stall_policy, status);
  const bool has_stepped = status.progress && status.progress->last_step_time;
  if (!late || observed.now < *late) {
    if (status.phase != Phase::kStalled) return;
    enter_phase(status, Phase::kRunning, "Progressing",
                has_stepped ? fmt::format("rank 0 is at step {} since {}", status.progress->step,
                                          to_rfc3339(*status.progress->last_step_time))
                            : "rank 0 starts again in its pod",
                observed.now);
  } else if (status.phase == Phase::kRunning && was_polled_late(observed, members, status, *late) &&
             observed.stall_reports) {
    // The message does not change while the stall lasts, so that nothing else is written.
    const std::string laggard = describe_laggard(observed, members);
    enter_phase(status, Phase::kStalled, has_stepped ? "NoStep" : "NoFirstStep",
                fmt::format("no optimizer step since {}{}; {}{}", has_stepped ? "" : "the start at ",
                            to_rfc3339(*awaited_since(status)), state_of_rank_0(observed, members, status),
                            laggard.empty() ? "" : "; " + laggard),
                observed.now);
  }
}

bool is_still_stalled(const Observed& observed, const Membership& members) {
  const api::StallPolicy& policy = observed.job.spec.stall_policy;
  const api::Condition* stalled = find_condition(observed.job.status, Phase::kStalled);
  if (observed.job.status.phase != Phase::kStalled || stalled == nullptr || progress_pod(members) == nullptr)
    return false;
  const api::Status status = refresh_status(observed, members);
  const std::optional<SystemTime> late = stall_time(policy, status);
  if (!late || observed.now < *late || !observed.last_poll) return false;
  const StatusPoll& poll = *observed.last_poll;
  const bool starts = !status.progress->last_step_time;  // a launcher answers before its ranks have reported
  const bool is_current = starts ? poll.reachable : poll.answered && has_progress(observed, status);
  if (is_current) return poll.sent_at >= *late;
  return poll.sent_at >= stalled->last_transition_time + std::chrono::seconds(policy.timeout_seconds);
}

std::optional<std::chrono::seconds> next_stall_check(const Observed& observed, const Membership& members,
                                                     const api::Status& status) {
  const api::StallPolicy& policy = observed.job.spec.stall_policy;
  const bool restarts = status.phase == Phase::kStalled && policy.action == api::StallAction::kRestart;
  if (status.phase != Phase::kRunning && !restarts) return std::nullopt;
  const std::optional<SystemTime> late = stall_time(policy, status);
  if (!late) return std::nullopt;
  const bool was_polled = was_polled_since(observed, members, *late);
  const bool starts = !status.progress->last_step_time;
  if ((restarts || starts) && observed.now >= *late && was_polled) return kStallRequeue;  // rank 0 does not answer
  return observed.now < *late ? time_until(late, observed.now) : kStaleCacheRequeue;  // rank 0 has not been polled yet
}

}  // namespace oarlock::control
