// The replacement of single pods while the others continue: whether it is possible, whether the group still exists, and
// when the group no longer waits for a replacement. Pure functions of the job and its pods.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "operator/core/pod_failure.h"

namespace oarlock::control {

// How long a collateral failure (exit code 76) waits for the status of the rank that caused it.
inline constexpr std::chrono::seconds kCollateralGracePeriod{10};

// The limit of pods that are replaced at the same time, so that their records keep the status of a job small. Above it,
// the group restarts.
inline constexpr int64_t kMaxReplacements = 64;

// How long after the exit of a disconnected launcher rank 0 may take to respond to a poll.
inline constexpr std::chrono::seconds kDisconnectedGracePeriod{30};

// How long after elastic.shrinkAfterSeconds the launchers may take to continue without a lost pod, and to report it:
// the pod's grace period, the end of ranks that hang, and the next poll.
inline constexpr std::chrono::seconds kShrinkInPlaceTime{120};

// Returns whether the replacement of a pod can join the others. It cannot if the Service was deleted and created again,
// because the new one has another key.
bool can_join(const Membership& members, size_t node_rank);

// Returns whether all of these pods can be replaced while the others continue, within kMaxReplacements. Before node
// rank 0 has responded in the attempt of a job with spec.preflight, they may wait for the pods that are lost. The
// caller checks the budget of restarts.
bool can_replace(const Observed& observed, const Membership& members, const std::vector<PodFailure>& failures);

// Whether the group still exists that disconnected launchers have left.
struct GroupEvidence {
  enum class State { kExists, kUnknown, kMissing };
  State state = State::kExists;
  std::chrono::seconds wait{0};  // for kUnknown: when to evaluate it again
};

// Returns kExists if no failure is that of a disconnected launcher.
GroupEvidence find_group(const Observed& observed, const Membership& members, const std::vector<PodFailure>& failures);

// Returns the replacement of this node rank if its pod has not started; null otherwise.
const api::Replacement* pending_replacement(const Job& job, const Membership& members, size_t node_rank);

// Returns whether the group can continue without the pods that have no node. `replacement` is null if the pod has not
// been created.
bool can_shrink(const Job& job, const Membership& members, const Pod* replacement);

// Returns when the group restarts because the pod of this node rank has not been replaced; absent if it has been, or if
// the group continues without it.
std::optional<SystemTime> replacement_deadline(const Observed& observed, const Membership& members, size_t node_rank);

// Returns whether rank 0 may have reported after the deadline that the group continues, and the operator does not know
// it yet.
bool awaits_report(const Observed& observed, const Membership& members, SystemTime deadline);

// Returns the delay after which the group may restart because a pending replacement has not started; absent without
// one, and while the group continues without it.
std::optional<std::chrono::seconds> next_replacement_check(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
