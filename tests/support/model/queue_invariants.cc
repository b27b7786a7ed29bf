#include "tests/support/model/queue_invariants.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "operator/core/desired.h"
#include "operator/core/membership.h"
#include "operator/core/queue.h"
#include "operator/core/workload.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT: this file is about its types
using api::Phase;

// Whether a pod of the job may still run: within its grace period, if it is being deleted.
bool has_live_pods(const SimCluster& cluster) {
  return std::ranges::any_of(cluster.pods(), [&](const auto& item) {
    const Pod& pod = item.second;
    const bool is_live = pod.phase == PodPhase::kPending || pod.phase == PodPhase::kRunning;
    return is_live && pod.owner_uid == cluster.job().metadata.uid &&
           (!pod.grace_ends_at || cluster.now() < *pod.grace_ends_at);
  });
}

// Whether the action releases the quota of the Workload.
bool releases_quota(const Action& action, const Workload& workload) {
  using Change = UpdateWorkload::Change;
  const auto* update = std::get_if<UpdateWorkload>(&action);
  if (update != nullptr) return update->change != Change::kReady && update->change != Change::kNotReady;
  const auto* remove = std::get_if<DeleteWorkload>(&action);
  return remove != nullptr && remove->name == workload.name;
}

}  // namespace

std::string check_gang(const CreatePod& create, const SimCluster& before, bool has_finished_ranks) {
  if (!before.objects().has_gangs) return "";
  if (create.gang && !before.objects().pod_groups.contains(create.gang->pod_group))
    return "a pod is created before its PodGroup";
  bool is_placed = has_finished_ranks;
  for (const auto& [name, pod] : before.pods()) {
    const std::optional<PodIdentity> id = parse_pod_name(before.job(), name);
    if (!id || id->attempt != create.attempt || pod.owner_uid != before.job().metadata.uid) continue;
    is_placed = is_placed || has_node(pod);
    if (create.gang && !pod.gang && !is_placed) return "a pod joins a PodGroup that its peers are not in";
  }
  const bool is_whole =
      before.job().group_nodes() > 1 && !before.job().spec.elastic && !is_placed && !create.is_replacement;
  return is_whole && !create.gang ? "a pod is created outside of the PodGroup of its attempt" : "";
}

std::string check_release(const Plan& plan, const SimCluster& cluster) {
  const Workload* workload = find_quota(cluster.objects());
  if (workload == nullptr || !has_live_pods(cluster)) return "";
  const bool is_released =
      std::ranges::any_of(plan.actions, [&](const Action& action) { return releases_quota(action, *workload); });
  return is_released ? "quota is released while a pod may use it" : "";
}

std::string check_quota(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const Workload* workload = find_quota(cluster.objects());
  if (!job.status.queue || job.metadata.deletion_timestamp) return "";
  if (is_running(job.status.phase) && !(workload != nullptr && admits_pods(*workload)))
    return "a job runs without quota";
  const bool is_inactive = is_terminal(job.status.phase) || job.status.phase == Phase::kSuspended;
  if (is_inactive && cluster.objects().workloads.size() > 1) return "an inactive job requests quota";
  if (workload == nullptr || has_live_pods(cluster)) return "";
  if (is_terminal(job.status.phase)) return "a finished job holds quota";
  if (job.status.phase == Phase::kSuspended) return "a suspended job holds quota";
  return workload->evicted ? "an evicted job holds quota" : "";
}

std::string check_pod_groups(const SimCluster& cluster) {
  const Job& job = cluster.job();
  if (job.metadata.deletion_timestamp) return "";
  for (const auto& [name, minimum] : cluster.objects().pod_groups) {
    const bool is_used = std::ranges::any_of(cluster.pods(), [&](const auto& item) {
      return is_live(item.second) && item.second.gang && item.second.gang->pod_group == name;
    });
    const bool is_current = name == pod_group_name(job, job.status.attempt) && !is_terminal(job.status.phase) &&
                            job.status.phase != Phase::kSuspended;
    if (!is_used && !is_current) return "a PodGroup exists without pods";
  }
  return "";
}

}  // namespace oarlock::test
