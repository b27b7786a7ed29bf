// The handover from pods that were requested to stop to those of the next attempt. A stopped trainer saves a checkpoint
// within the grace period of its pod. A new attempt takes over the checkpoint directory, so it must not begin before.
// Pods on a node that does not respond are not waited for, and no pod for much longer than its grace period.
#pragma once

#include <chrono>
#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// How much longer than its grace period a pod may take to end: the kubelet kills it at the end of that period and then
// reports it, and the clocks of the API server and of the operator differ.
inline constexpr std::chrono::seconds kStopMargin = kClockTolerance;

struct StoppingPods {
  int count = 0;
  std::optional<std::chrono::seconds> wait{};  // until all of them have exceeded their time; absent if count is 0
};

// Returns the pods for which the pods of status.attempt wait: those of earlier attempts whose trainers still run, if
// the last attempt was stopped (api::AttemptRecord::stopped) or suspended. A resume waits for them before, unless its
// cache did not show them. There are none after a crash, because the peers of a rank that crashed cannot save: they end
// when their connection to it breaks.
StoppingPods find_handover(const api::Status& status, const Job& job, const Membership& members, SystemTime now);

// Returns the live pods of a job that is being suspended.
StoppingPods find_suspending(const Membership& members, SystemTime now);

}  // namespace oarlock::control
