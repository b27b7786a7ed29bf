#include "operator/core/cleanup.h"

#include "operator/core/plan.h"

namespace oarlock::control {
namespace {

// The kubelet reports the end of a container a moment before the pod's own; a pod deleted in between loses its log.
// One that has not ended after this long has another container that goes on, and is deleted.
constexpr std::chrono::seconds kEndGrace{10};

bool is_live(const Pod& pod) { return pod.phase != PodPhase::kSucceeded && pod.phase != PodPhase::kFailed; }

// With `exact` the pod must not have changed since it was seen.
void remove(const Pod& pod, const char* reason, bool exact, Deletions& out) {
  if (!pod.deleting) out.actions.emplace_back(DeletePod{pod.name, pod.uid, exact ? pod.resource_version : "", reason});
}

// Stops a pod that has no more work, which was decided at `since`.
void stop(const Pod& pod, const char* reason, bool exact, SystemTime since, SystemTime now, Deletions& out) {
  if (!is_live(pod) || pod.deleting) return;
  if (const auto left = time_left(since + kEndGrace, now); pod.trainer && left) {
    out.look_again = left;
    return;
  }
  remove(pod, reason, exact, out);
}

template <typename Fn>
void each_pod(const Membership& members, Fn visit) {
  for (const Pod* pod : members.current) {
    if (pod != nullptr) visit(*pod);
  }
  for (const Pod* pod : members.old) visit(*pod);
  for (const Pod* pod : members.ahead) visit(*pod);
}

}  // namespace

Deletions clear_old(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  const SystemTime since = status.attempt_start_time.value_or(observed.now);
  Deletions out;
  for (const Pod* pod : members.old) {
    if (is_live(*pod)) {
      stop(*pod, "it belongs to an earlier attempt", false, since, observed.now, out);
    } else if (identify(observed.job, pod->name)->attempt < status.attempt - 1) {
      remove(*pod, "it ended two attempts ago", false, out);
    }
  }
  return out;
}

Deletions stop_all(const Observed& observed, const Membership& members, const char* reason, SystemTime since) {
  Deletions out;
  each_pod(members, [&](const Pod& pod) { stop(pod, reason, false, since, observed.now, out); });
  return out;
}

Deletions clear_ended(const Observed& observed, const Membership& members, SystemTime since) {
  const api::CleanPodPolicy policy = observed.job.spec.clean_pod_policy;
  Deletions out;
  if (policy == api::CleanPodPolicy::kNone) return out;
  each_pod(members, [&](const Pod& pod) {
    if (is_live(pod)) {
      stop(pod, "the job has ended", true, since, observed.now, out);
    } else if (policy == api::CleanPodPolicy::kAll) {
      remove(pod, "the job has ended and cleanPodPolicy is All", false, out);
    }
  });
  // Pods that still run may look each other up until they are told to stop.
  // One that is being deleted still accepts connections.
  bool has_running_pods = false;
  bool has_live_pods = false;
  each_pod(members, [&](const Pod& pod) {
    has_live_pods |= is_live(pod);
    has_running_pods |= is_live(pod) && !pod.deleting;
  });
  if (members.service != nullptr && !members.service->deleting && !has_running_pods)
    out.actions.emplace_back(DeleteService{members.service->name, members.service->uid});
  const NetworkPolicy* network_policy = members.network_policy;
  if (network_policy != nullptr && !network_policy->deleting && !has_live_pods)
    out.actions.emplace_back(DeleteNetworkPolicy{network_policy->name, network_policy->uid});
  return out;
}

}  // namespace oarlock::control
