#include "operator/core/handover.h"

#include <algorithm>

namespace oarlock::control {
namespace {

// A pod whose deletion has not been accepted yet has its whole grace period: the plan deletes it first, and stops if
// that fails.
void add(const Pod& pod, SystemTime now, StoppingPods& out) {
  if (pod.unreachable || pod.phase == PodPhase::kUnknown) return;
  const std::chrono::seconds grace(pod.grace_seconds);
  std::optional<std::chrono::seconds> left = grace + kStopMargin;
  if (pod.deleting) {
    if (!pod.grace_ends_at) return;
    left = time_until(end_of_delay(*pod.grace_ends_at - grace, grace + kStopMargin, now), now);
  }
  if (!left) return;
  ++out.count;
  out.wait = std::max(out.wait.value_or(*left), *left);
}

// Before a pending attempt, there was a suspension.
bool follows_stop(const api::Status& status) {
  if (status.phase == api::Phase::kPending) return true;
  return status.phase == api::Phase::kRestarting && !status.attempts.empty() && status.attempts.back().stopped;
}

}  // namespace

StoppingPods find_handover(const api::Status& status, const Job& job, const Membership& members, SystemTime now) {
  StoppingPods out;
  if (!follows_stop(status)) return out;
  for (const Pod* pod : members.old) {
    const std::optional<PodIdentity> id = parse_pod_name(job, pod->name);
    const bool is_earlier = id && id->attempt < status.attempt;
    if (is_earlier && pod->phase == PodPhase::kRunning && !has_ended(*pod)) add(*pod, now, out);
  }
  return out;
}

StoppingPods find_suspending(const Membership& members, SystemTime now) {
  StoppingPods out;
  for (const std::vector<const Pod*>* pods : {&members.current, &members.old, &members.newer}) {
    for (const Pod* pod : *pods) {
      if (pod != nullptr && pod->phase != PodPhase::kSucceeded && pod->phase != PodPhase::kFailed) add(*pod, now, out);
    }
  }
  return out;
}

}  // namespace oarlock::control
