// The failure policy of a job: which pods of the current attempt failed, which failure is the root cause, and whether
// the group restarts, after which delay, or the job fails. Pure functions of the job and its pods.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// ---- Failures of single pods ---------------------------------------------------------------------------------------

// The values are ordered by how likely a failure is the root cause, the most likely first.
enum class FailureCause {
  kRemoved,       // deleted, evicted or disrupted
  kExit,          // the trainer failed with its own exit code
  kInterrupted,   // exit code 75
  kLost,          // the pod does not exist any more, and its exit code is not known
  kDisconnected,  // exit code 76: the launcher lost the connection to node rank 0 (is_disconnected())
  kCollateral,    // exit code 76: the trainer lost the connection to another rank
};

// The failure of one pod of the current attempt.
struct PodFailure {
  FailureCause cause = FailureCause::kExit;
  SystemTime when = SystemTime::max();  // time of the exit, if there was one
  int node_rank = 0;
  const Pod* pod = nullptr;   // null if the pod does not exist any more
  api::AttemptRecord record;  // without times; for kCollateral also without pod, node, node rank and exit code
  api::FailureAction action = api::FailureAction::kRestart;
  std::optional<size_t> rule;  // index of the failurePolicy rule that set the action; absent if it is the default
};

// Returns the failures of the current attempt in the order of their node ranks, except for those that a rule ignores.
// The default action is kFail for exit codes 64..78 other than 75 and 76, kRestartFree for disruptions and kRestart
// otherwise.
std::vector<PodFailure> find_pod_failures(const Job& job, const Membership& members);

// Returns whether the pod has succeeded or has terminated in a way that a rule ignores.
bool is_done(const Job& job, const Pod& pod);

// Returns whether the pod of this node rank is done, or the status records that it was.
bool is_rank_done(const Job& job, const Membership& members, size_t node_rank);

// ---- Failure of the group ------------------------------------------------------------------------------------------

// How long a collateral failure (exit code 76) waits for the status of the rank that caused it.
inline constexpr std::chrono::seconds kCollateralGracePeriod{10};

// How long after the exit of a disconnected launcher rank 0 may take to respond to a poll.
inline constexpr std::chrono::seconds kDisconnectedGracePeriod{30};

struct GroupFailure {
  enum class Decision {
    kNone,     // no pod has failed
    kWait,     // only failures so far whose root cause is not known yet; evaluate again after `wait`
    kReplace,  // replace the pods in `replaced`; the others continue
    kRestart,  // restart all pods as the next attempt
    kFail,     // fail the job
  };
  Decision decision = Decision::kNone;
  std::chrono::seconds wait{0};
  std::string reason;         // of the condition
  std::string message;        // of the condition
  api::AttemptRecord record;  // of the attempt that ended, with the root cause; the caller adds the times
  // Name of a missing pod on which the decision rests. The caller must confirm that it does not exist
  // (ConfirmPodAbsent) before it acts. Empty if the decision does not rest on a missing pod.
  std::string confirm_absent;
  // In a job whose pods are replaced, a pod that was observed may be the predecessor of the pod that now has the name.
  // confirm_absent is then always set, and the plan continues if the pod has this uid.
  std::string except_uid;
  std::vector<PodFailure> replaced;  // for kReplace
  std::optional<int> nodes;          // of the next attempt, if it differs from the group's present size
  bool is_charged = true;            // the restart counts against failurePolicy.maxRestarts
  std::string_view restart_reason;   // one of restart_reasons()
};

// Decides about the failures of the current attempt by their root cause, which is, in this order: a pod whose failure
// fails the job; a pod that was deleted, evicted or disrupted; the earliest of the other exits; an interrupted rank
// (75); a lost pod; a disconnected launcher; a collateral failure (76). The action of the root cause applies to the
// whole group, but a charged restart fails the job if failurePolicy.maxRestarts are used up.
//
// With failurePolicy.restartScope Rank, pods that were removed, lost or killed are replaced instead, while a running
// pod holds the state, within the same budget. The group restarts if pods ended in any other way: then their launchers
// have ended the group, because it cannot recover. It also restarts if a replacement has not started after the time in
// which a job without steps is Stalled, or, with the other pods only, if it has no node after
// elastic.shrinkAfterSeconds. A restart because of that, or because the other pods ended before (75 or 76),
// is not charged: the loss of the pod was, unless it was free.
//
// Launchers that continue with fewer nodes in place (launcher_bounds()) decide first: the operator waits until
// kShrinkInPlaceTime after they should have continued, counted from the newest loss, and then for as long as they
// report that they have (continues_with_fewer_nodes()).
//
// The pod of such a launcher is also replaced if the launcher ended because it lost the connection to node rank 0. That
// launcher cannot know whether the others still exist. A response of rank 0 to a poll that was sent
// kCollateralGracePeriod after the exit proves it, because rank 0 ends with its group: the group trains with fewer
// nodes, or waits for this one. Without a response for kDisconnectedGracePeriod, as when it is node rank 0 that has
// no connection, the exit is a collateral failure. Each replacement counts, so that maxRestarts bounds them.
GroupFailure evaluate_failure_policy(const Observed& observed, const Membership& members);

// How long after elastic.shrinkAfterSeconds the launchers may take to continue without a lost pod, and to report it:
// the pod's grace period, the end of ranks that hang, and the next poll.
inline constexpr std::chrono::seconds kShrinkInPlaceTime{120};

// Returns the delay after which the group may restart because a pending replacement has not started; absent without
// one, and while the group continues without it.
std::optional<std::chrono::seconds> next_replacement_check(const Observed& observed, const Membership& members);

// Returns the restarts and replacements that count against failurePolicy.maxRestarts.
int used_restarts(const api::Status& status);

// All values of GroupFailure::restart_reason, for status.restarts.reasons and the metric's label.
std::span<const std::string_view> restart_reasons();

// ---- Restart backoff -----------------------------------------------------------------------------------------------
// The delays follow from the status alone, so that a restarted operator neither shortens nor extends them.

// An attempt that ran for at least this long resets the backoff.
inline constexpr std::chrono::minutes kBackoffResetAfter{10};
inline constexpr std::chrono::minutes kMaxBackoff{5};

// Returns the delay before the next attempt, given the attempts recorded in the status: zero after the first of several
// consecutive short attempts, failurePolicy.backoffSeconds after the second, and twice the previous delay after each
// further one. The maximum is kMaxBackoff, or backoffSeconds if that is longer.
std::chrono::seconds restart_delay(const api::FailurePolicy& policy, const api::Status& status);

// Returns the time before which the pods of the attempt must not be created; absent if they may be created immediately.
std::optional<SystemTime> restart_time(const api::FailurePolicy& policy, const api::Status& status, SystemTime now);

}  // namespace oarlock::control
