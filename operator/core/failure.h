// The failure policy of a job: which failure is the root cause, and whether the group continues with replaced pods,
// restarts, after which delay, or the job fails. Pure functions of the job and its pods.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/membership.h"
#include "operator/core/pod_failure.h"
#include "operator/core/replacement.h"
#include "operator/core/restart_budget.h"

namespace oarlock::control {

// ---- Failure of the group ------------------------------------------------------------------------------------------

// A program that has run for this long without all of its peers may have ended because it waited for them.
inline constexpr std::chrono::seconds kPeerWait{60};

struct GroupFailure {
  enum class Decision {
    kNone,     // no pod has failed
    kWait,     // only failures so far whose root cause is not known yet; evaluate again after `wait`
    kReplace,  // replace the pods in `causes`; the others continue
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
  // The failures of the pods to replace for kReplace, and otherwise the root cause, if it is the failure of a pod.
  std::vector<PodFailure> causes;
  std::optional<int> nodes;             // of the next attempt, if it differs from the group's present size
  bool is_free = false;                 // whether or not the attempt has made progress
  std::optional<RestartCharge> charge;  // absent if the failure is free, or fails the job without regard to its budget
  std::string_view restart_reason;      // one of restart_reasons()

  // Whether the restart counts against failurePolicy.maxRestarts.
  bool is_charged() const { return charge && charge->charged > 0; }
};

// Decides about the failures of the current attempt. The first rule that applies decides:
//
// 1. Shrinking in place. If the launchers continue with fewer nodes (launcher_bounds()), the operator waits until
//    kShrinkInPlaceTime after they should have continued, counted from the newest loss, and then for as long as they
//    report that they have (continues_with_fewer_nodes()).
// 2. Replacement. With failurePolicy.restartScope Rank, pods that were removed, lost or killed are replaced while a
//    running pod holds the state. A pod whose launcher lost the connection to node rank 0 is replaced once a poll that
//    was sent kCollateralGracePeriod after its exit proves that rank 0 runs; after kDisconnectedGracePeriod without
//    such a response, its exit is a collateral failure.
// 3. Replacement without success. The group restarts if a replacement has not started after the time in which a job
//    without steps is Stalled; with the other pods only, if it has no node after elastic.shrinkAfterSeconds.
// 4. Root cause. The action of the root cause applies to the whole group. It is, in this order: a pod whose failure
//    fails the job; a pod that was deleted, evicted or disrupted; the earliest of the other exits; an interrupted rank
//    (75); a lost pod; a disconnected launcher; a collateral failure (76).
//
// 5. Stall. With stallPolicy.action Restart, a group whose step does not change restarts (is_still_stalled()), unless
//    a pod is being replaced.
//
// 6. Placement. A group whose pods are not placed until placement_deadline() is deleted, and starts again later.
//
// Each replacement and each restart that is not free is charged by charge_failures(), which also decides whether the
// job fails instead. A restart is free by rule 3; because the other pods ended with 75 or 76 after a loss, which was
// charged itself unless it was free; or without a matching rule if not all pods of the attempt have started. The last
// kind is not free if the trainer failed by itself within kPeerWait after its pod was scheduled and nothing is known to
// keep the others from starting.
GroupFailure evaluate_failure_policy(const Observed& observed, const Membership& members);

// ---- Restart backoff -----------------------------------------------------------------------------------------------
// The delays follow from the status alone, so that a restarted operator neither shortens nor extends them.

// Whether the attempt failed, or a rank of it was stopped: its end was no change of the size, no end of an admission,
// and not that its pods were not placed.
bool has_failed(const api::AttemptRecord& record);

// Returns restart_backoff() of failurePolicy.backoffSeconds after the failed attempts that the status records; after
// one whose pods were not placed, placement_delay().
std::chrono::seconds restart_delay(const Job& job, const api::Status& status);

// Returns the time before which the pods of the attempt must not be created; absent if they may be created immediately.
std::optional<SystemTime> restart_time(const Job& job, const api::Status& status, SystemTime now);

}  // namespace oarlock::control
