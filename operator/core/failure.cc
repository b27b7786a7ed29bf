#include "operator/core/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "common/contract.h"
#include "common/restart_backoff.h"
#include "common/text.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/placement.h"
#include "operator/core/progress.h"
#include "operator/core/queue.h"
#include "operator/core/replacement.h"
#include "operator/core/stall.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::FailureAction;
using std::chrono::seconds;

// ---- Root cause of several failures --------------------------------------------------------------------------------

// A pod that names another one may be the consequence of that one's exit, in the same second.
bool has_higher_priority(const PodFailure& a, const PodFailure& b) {
  const auto order = [](const PodFailure& one) {
    return std::tuple(one.action != FailureAction::kFail, one.cause, one.named_node.has_value(), one.when,
                      one.node_rank);
  };
  return order(a) < order(b);
}

// Returns how much longer a collateral failure waits for the status of its root cause; zero if that time is over, or if
// no pod is left that could be the root cause.
seconds collateral_wait(const Membership& members, const PodFailure& first, SystemTime now) {
  const bool all_ended = std::all_of(members.current.begin(), members.current.end(),
                                     [](const Pod* pod) { return pod == nullptr || has_ended(*pod) || pod->deleting; });
  // The time of the exit is that of the node's clock. A clock that is ahead must not extend the wait.
  if (all_ended || first.when > now) return seconds(0);
  const auto left = first.when + kCollateralGracePeriod - now;
  return std::max(std::chrono::ceil<seconds>(left), seconds(0));
}

void set_permanent_failure(const PodFailure& root_cause, GroupFailure& out) {
  out.decision = GroupFailure::Decision::kFail;
  if (root_cause.rule) {
    out.reason = "FailurePolicy";
    out.message = fmt::format("{}; failurePolicy.rules[{}] fails the job", out.record.message, *root_cause.rule);
  } else {
    out.reason = "PermanentFailure";
    out.message = out.record.message + "; a restart would fail again";
  }
}

// ---- Restarts because of replacements -------------------------------------------------------------------------------

bool is_name_taken(const Membership& members, const std::string& pod) {
  return std::ranges::any_of(members.conflicting_pods, [&](const Pod* other) { return other->name == pod; });
}

// A restart because of a lost pod whose replacement is pending.
GroupFailure restart_for(const Job& job, const Membership& members, size_t node_rank, const std::string& why) {
  const api::Replacement& lost = *members.replacements[node_rank];
  GroupFailure out;
  out.decision = GroupFailure::Decision::kRestart;
  out.record.attempt = job.status.attempt;
  out.record.node_rank = lost.node_rank;
  out.record.pod = pod_name(job, job.status.attempt, lost.node_rank);
  out.record.reason = lost.reason;
  out.record.message = fmt::format("{}; {}", lost.message, why);
  out.reason = out.record.reason;
  out.message = out.record.message;
  out.record.stopped = true;
  out.is_free = true;  // the replacement was charged, unless the loss was free
  out.restart_reason = kPodLost;
  if (is_replacement_due(members, node_rank) && !is_name_taken(members, out.record.pod)) {
    out.confirm_absent = out.record.pod;
    out.except_uid = lost.pod_uid;
  }
  return out;
}

// Pods with different keys never form a group, and would only end after the launchers' time-outs. The Service was
// deleted and created again while the pods of the attempt were created.
GroupFailure evaluate_keys(const Job& job, const Membership& members) {
  if (!needs_token(job, job.group_nodes())) return {};
  const Pod* first = nullptr;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    // A pod without the annotation may be of an earlier version of the operator, and have the same token.
    if (pod == nullptr || pod->regroup_key.empty() || is_rank_done(job, members, rank)) continue;
    if (first == nullptr) first = pod;
    if (pod->regroup_key == first->regroup_key) continue;
    GroupFailure out;
    out.decision = GroupFailure::Decision::kRestart;
    out.record.attempt = job.status.attempt;
    out.record.reason = "ServiceReplaced";
    out.record.stopped = true;
    out.record.message = fmt::format(
        "pods {} and {} cannot connect to each other: the job's Service was replaced between their creations",
        first->name, pod->name);
    out.reason = out.record.reason;
    out.message = out.record.message;
    out.is_free = true;
    out.restart_reason = kReasonPeerLost;
    return out;
  }
  return {};
}

// A replacement that is late, or that could not join the others, restarts the group.
GroupFailure evaluate_replacements(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    if (pending_replacement(job, members, rank) == nullptr) continue;
    if (!can_join(members, rank))
      return restart_for(job, members, rank, "a new pod could not join the others: the job's Service was replaced");
    const std::optional<SystemTime> deadline = replacement_deadline(observed, members, rank);
    if (!deadline || *deadline > observed.now || awaits_report(observed, members, *deadline)) continue;
    const auto waited = std::chrono::floor<seconds>(*deadline - members.replacements[rank]->time);
    GroupFailure out =
        restart_for(job, members, rank, fmt::format("its replacement did not start within {} s", waited.count()));
    if (can_shrink(job, members, members.current[rank])) {
      out.nodes = count_placed(members);
      out.restart_reason = kShrunk;
      out.reason = out.record.reason = kShrunk;
      out.message = out.record.message =
          fmt::format("{} instead of {}: {}", counted(*out.nodes, "node"), job.group_nodes(), out.record.message);
      out.record.pod.clear();
      out.record.node_rank.reset();
    }
    return out;
  }
  return evaluate_keys(job, members);
}

// The pods of a group end with these causes also when they give up waiting for the replacement of a lost pod. The loss
// is then the root cause. The pod that ended is the one whose identity is confirmed: the restart rests on its end.
std::optional<GroupFailure> evaluate_end_before_replacement(const Observed& observed, const Membership& members,
                                                            const PodFailure& root_cause) {
  const Job& job = observed.job;
  const bool may_give_up = has_other_cause(root_cause) || root_cause.cause == FailureCause::kInterrupted;
  if (!may_give_up || root_cause.action == FailureAction::kFail) return std::nullopt;
  if (continues_with_fewer_nodes(observed, members)) return std::nullopt;  // it did not wait any more
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    if (pending_replacement(job, members, rank) == nullptr) continue;
    GroupFailure out = restart_for(job, members, rank, "the other pods ended before its replacement started");
    out.confirm_absent = root_cause.pod->name;
    out.except_uid = root_cause.pod->uid;
    return out;
  }
  return std::nullopt;
}

// Whether the program ended by itself too soon to have waited for its peers.
bool ended_soon(const PodFailure& failure) {
  if (failure.cause != FailureCause::kExit) return false;
  if (!failure.record.container.empty()) return true;  // an init container waits for no other pod
  const std::optional<SystemTime> since = failure.pod->scheduled_at;
  return !since || failure.when - *since < kPeerWait;
}

// An attempt whose pods have not all started is not charged, because a rank that ended may have waited for the others
// without success. The record then names the pod that has not started, and why. An exit is charged if it came soon and
// nothing keeps the other pods from starting: the program fails by itself.
void excuse_incomplete_start(const Observed& observed, const Membership& members, const PodFailure& root_cause,
                             GroupFailure& out) {
  if (have_all_started(observed.job, members)) return;
  const WaitingReason missing = find_waiting_reason(observed, members);
  const bool is_named = missing.reason != kPodsStarting;
  if (ended_soon(root_cause) && !is_named) return;
  out.is_free = true;
  const bool has_own_cause = root_cause.cause == FailureCause::kRemoved || root_cause.cause == FailureCause::kLost ||
                             !root_cause.record.container.empty();
  if (has_own_cause) return;
  api::AttemptRecord& record = out.record;
  const std::string place =
      missing.pod == nullptr || is_named ? "" : fmt::format("; pod {} has not", missing.pod->name);
  record.reason = missing.reason;
  record.message = fmt::format("{}{}; {}", missing.message, place, record.message);
  record.pod = missing.pod == nullptr ? "" : missing.pod->name;
  record.node = missing.pod == nullptr ? "" : missing.pod->node_name;
  record.exit_code.reset();
  record.node_rank.reset();
  record.rank.reset();
  if (missing.pod != nullptr) record.node_rank = parse_pod_name(observed.job, missing.pod->name)->node_rank;
  out.restart_reason = kNotStarted;
  if (!is_hardware_failure(root_cause)) out.causes.clear();
}

// Restarts the group, or fails the job if its budget does not allow the restart.
void decide_restart(const Observed& observed, const Membership& members, GroupFailure& out) {
  const Job& job = observed.job;
  out.decision = GroupFailure::Decision::kRestart;
  out.reason = out.record.reason;
  out.message = out.record.message;
  if (out.is_free) return;
  out.charge =
      charge_failures(job.spec.failure_policy, job.status, find_highest_progress(observed, members), BudgetRequest{});
  if (out.charge->reason.empty()) return;
  out.decision = GroupFailure::Decision::kFail;
  out.reason = out.charge->reason;
  out.message = fmt::format("{}; {}", out.record.message, out.charge->message);
}

// Returns what a replacement of the pods costs; no cost if all of these failures are free.
std::optional<RestartCharge> charge_of_replacement(const Observed& observed, const Membership& members,
                                                   const std::vector<PodFailure>& failures) {
  const auto charged = std::ranges::count_if(
      failures, [](const PodFailure& failure) { return failure.action != FailureAction::kRestartFree; });
  if (charged == 0) return std::nullopt;
  return charge_failures(observed.job.spec.failure_policy, observed.job.status,
                         find_highest_progress(observed, members),
                         {.failures = static_cast<int>(charged), .is_group_restart = false});
}

// Pods that are not placed in time release what they hold.
GroupFailure evaluate_placement(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const std::optional<SystemTime> deadline = placement_deadline(observed, members);
  GroupFailure out;
  if (!deadline || observed.now < *deadline) return out;
  const WaitingReason why = find_waiting_reason(observed, members);
  out.decision = job.spec.scheduling.pending_action == api::PendingAction::kFail ? GroupFailure::Decision::kFail
                                                                                 : GroupFailure::Decision::kRestart;
  out.record.attempt = job.status.attempt;
  out.record.reason = kNotPlaced;
  out.record.message =
      fmt::format("not all pods were placed within {} s: {}", pending_timeout(observed)->count(), why.message);
  out.record.stopped = true;
  out.reason = out.record.reason;
  out.message = out.record.message;
  out.is_free = true;
  out.restart_reason = kNotPlaced;
  return out;
}

// Pods that run, but make no progress, restart if stallPolicy.action requires it.
GroupFailure evaluate_stall(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  GroupFailure out;
  const bool is_replacing = std::ranges::any_of(members.replacements, [](const auto* one) { return one != nullptr; });
  if (job.spec.stall_policy.action != api::StallAction::kRestart || is_replacing ||
      !is_still_stalled(observed, members))
    return out;
  out.record.attempt = job.status.attempt;
  out.record.reason = kStalled;
  out.record.message = find_condition(job.status, api::Phase::kStalled)->message;  // is_still_stalled() requires it
  out.record.stopped = true;  // ranks that respond save their state
  out.restart_reason = kStalled;
  decide_restart(observed, members, out);
  return out;
}

// The failures for which nodes are blamed: the root cause, and the nodes that have failed the same preflight.
std::vector<PodFailure> find_causes(const std::vector<PodFailure>& all, const PodFailure& root_cause) {
  std::vector<PodFailure> out = {root_cause};
  for (const PodFailure& failure : all) {
    if (&failure != &root_cause && names_failed_node(failure)) out.push_back(failure);
  }
  return out;
}

bool was_short(const api::AttemptRecord& record) {
  return !record.start_time || record.end_time - *record.start_time < kBackoffResetAfter;
}

}  // namespace

GroupFailure evaluate_failure_policy(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const std::vector<PodFailure> all = find_pod_failures(job, members);
  if (all.empty()) {
    GroupFailure out = evaluate_replacements(observed, members);
    if (out.decision == GroupFailure::Decision::kNone) out = evaluate_placement(observed, members);
    return out.decision == GroupFailure::Decision::kNone ? evaluate_stall(observed, members) : out;
  }
  const PodFailure& root_cause = *std::min_element(all.begin(), all.end(), has_higher_priority);
  GroupFailure out;
  if (can_replace(observed, members, all)) {
    std::optional<RestartCharge> cost = charge_of_replacement(observed, members, all);
    const bool is_allowed = !cost || cost->reason.empty();
    const GroupEvidence group =
        is_allowed ? find_group(observed, members, all) : GroupEvidence{GroupEvidence::State::kMissing};
    if (group.state == GroupEvidence::State::kExists) {
      out.decision = GroupFailure::Decision::kReplace;
      out.causes = all;
      out.charge = std::move(cost);
      return out;
    }
    if (group.state == GroupEvidence::State::kUnknown) {
      out.decision = GroupFailure::Decision::kWait;
      out.wait = group.wait;
      out.message = fmt::format("{}; waiting for a response of rank 0, which shows whether the others continue",
                                root_cause.record.message);
      return out;
    }
  }
  if (has_other_cause(root_cause)) {
    out.wait = collateral_wait(members, root_cause, observed.now);
    if (out.wait.count() > 0) {
      out.decision = GroupFailure::Decision::kWait;
      out.message = fmt::format("{} lost a peer; waiting for the peer's own status",
                                pod_name(job, job.status.attempt, root_cause.node_rank));
      return out;
    }
  }
  if (std::optional<GroupFailure> restart = evaluate_end_before_replacement(observed, members, root_cause))
    return std::move(*restart);
  out.record = root_cause.record;
  out.record.stopped = root_cause.cause == FailureCause::kRemoved || root_cause.cause == FailureCause::kInterrupted ||
                       root_cause.cause == FailureCause::kLost;
  const bool replaced = is_name_taken(members, out.record.pod);
  if (root_cause.cause == FailureCause::kLost && !replaced) out.confirm_absent = out.record.pod;
  if (root_cause.pod != nullptr && regroups(job)) {
    out.confirm_absent = root_cause.pod->name;
    out.except_uid = root_cause.pod->uid;
  }
  out.causes = find_causes(all, root_cause);
  if (root_cause.action == FailureAction::kFail) {
    set_permanent_failure(root_cause, out);
    return out;
  }
  out.is_free = root_cause.action == FailureAction::kRestartFree;
  out.restart_reason = restart_reason(root_cause);
  if (!out.is_free && !root_cause.rule) excuse_incomplete_start(observed, members, root_cause, out);
  decide_restart(observed, members, out);
  return out;
}

bool has_failed(const api::AttemptRecord& record) {
  return !ended_by_resize(record) && !ended_unplaced(record) && !ended_by_queue(record);
}

seconds restart_delay(const Job& job, const api::Status& status) {
  const auto& attempts = status.attempts;
  if (!attempts.empty() && ended_unplaced(attempts.back())) return placement_delay(job, attempts.back());
  const auto steady = std::find_if(attempts.rbegin(), attempts.rend(),
                                   [](const auto& record) { return !was_short(record) && has_failed(record); });
  const auto quick = std::count_if(attempts.rbegin(), steady, has_failed);
  return std::chrono::duration_cast<seconds>(restart_backoff(seconds(job.spec.failure_policy.backoff_seconds), quick));
}

std::optional<SystemTime> restart_time(const Job& job, const api::Status& status, SystemTime now) {
  if (status.phase != api::Phase::kRestarting || status.attempts.empty()) return std::nullopt;
  if (ended_by_resize(status.attempts.back()) || ended_by_queue(status.attempts.back())) return std::nullopt;
  const seconds delay = restart_delay(job, status);
  if (delay.count() <= 0) return std::nullopt;
  return end_of_delay(status.attempts.back().end_time, delay, now);
}

}  // namespace oarlock::control
