// The failures of single pods of the current attempt: cause, record and action. Pure functions of the job and its pods.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "operator/core/membership.h"

namespace oarlock::control {

// The values are ordered by how likely a failure is the root cause, the most likely first.
enum class FailureCause {
  kRemoved,       // deleted, evicted or disrupted, unless the trainer had ended before (ended_before_stop())
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
  // The node that has caused the failure, if it is not that of the pod: another one that node rank 0 has named in a
  // preflight, or "" if that is not to blame. Absent otherwise.
  std::optional<std::string> named_node;
  std::optional<size_t> rule;  // index of the failurePolicy rule that set the action; absent if it is the default
};

// Returns the failures of the current attempt in the order of their node ranks, except for those that a rule ignores.
// The default action is kFail for exit codes 64..78 of the trainer other than 75 and 76, kRestartFree for disruptions
// and for pods that their node rejected (is_rejected()), and kRestart otherwise.
std::vector<PodFailure> find_pod_failures(const Job& job, const Membership& members);

// Returns whether the pod has succeeded or has terminated in a way that a rule ignores.
bool is_done(const Job& job, const Pod& pod);

// Returns whether the pod of this node rank is done, or the status records that it was.
bool is_rank_done(const Job& job, const Membership& members, size_t node_rank);

// Returns whether the pod failed because of its node: no container has started, or the kubelet gives such a reason for
// a pod that it admitted before it was restarted (UnexpectedAdmissionError, OutOfcpu, NodeAffinity ...).
bool is_rejected(const Pod& pod);

// Returns whether the pod's launcher reports that a node has failed its preflight (docs/guides/preflight.md).
bool names_failed_node(const PodFailure& failure);

// Returns whether the trainer ended because of another pod.
bool has_other_cause(const PodFailure& failure);

// In the message of a pod that is_rejected().
inline constexpr std::string_view kRejectedByNode = "was rejected by its node";

// The reason of a pod that does not exist any more.
inline constexpr std::string_view kPodLost = "PodLost";

// The reason of a restart because pods of the attempt did not start, in status.restarts.
inline constexpr std::string_view kNotStarted = "NotStarted";
// The reason of the end of an attempt whose pods were not placed in time (placement.h).
inline constexpr std::string_view kNotPlaced = "NotPlaced";

// The reason of a restart because of stallPolicy.action.
inline constexpr std::string_view kStalled = "Stalled";

// The reason of the end of an attempt whose queue did not admit the job any more (queue.h).
inline constexpr std::string_view kQueueEvicted = "QueueEvicted";

// Returns the reason of a restart whose root cause is this failure; one of restart_reasons().
std::string_view restart_reason(const PodFailure& failure);

// All values of GroupFailure::restart_reason, for status.restarts.reasons and the metric's label.
std::span<const std::string_view> restart_reasons();

}  // namespace oarlock::control
