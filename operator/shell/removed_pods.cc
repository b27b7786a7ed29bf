#include "operator/shell/removed_pods.h"

#include "operator/core/failure.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

// Whether the status does not record yet that the pod was done.
bool is_needed(const Job& job, const Pod& pod) {
  const std::optional<PodIdentity> id = parse_pod_name(job, pod.name);
  if (!id || pod.owner_uid != job.metadata.uid || is_terminal(job.status.phase)) return false;
  if (id->attempt < job.status.attempt || id->node_rank >= job.spec.nodes) return false;
  const std::optional<api::FinishedRanks>& recorded = job.status.finished_ranks;
  if (!recorded || recorded->attempt != id->attempt) return true;
  const auto rank = static_cast<size_t>(id->node_rank);
  return !parse_rank_set(recorded->node_ranks, rank + 1)[rank];
}

// The failure rules of a trimmed job are not in memory. Any pod that ended on its own is kept; whether a rule ignores
// its failure is decided once the whole job has been read.
bool may_be_done(const Job& job, const Pod& pod) {
  if (job.report.is_trimmed) return pod.trainer && (has_succeeded(pod) || !is_stop_requested(pod));
  return is_done(job, pod);
}

}  // namespace

void RemovedPods::add(const kube::ObjectKey& job, const CachedPod& last, const FindJob& find_job) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<const Job> owner = find_job();
  if (owner == nullptr || !is_needed(*owner, last.pod) || !may_be_done(*owner, last.pod)) return;
  pods_[job.to_string()].try_emplace(last.pod.uid, last);
}

void RemovedPods::forget_recorded(const kube::ObjectKey& key, const Job* job) {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(key.to_string());
  if (found == pods_.end()) return;
  std::erase_if(found->second,
                [&](const auto& entry) { return job == nullptr || !is_needed(*job, entry.second.unpack().pod); });
  if (found->second.empty()) pods_.erase(found);
}

void RemovedPods::append_to(const kube::ObjectKey& job, std::vector<Pod>& pods) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(job.to_string());
  if (found == pods_.end()) return;
  std::unordered_map<std::string, size_t> existing;
  for (size_t i = 0; i < pods.size(); ++i) existing.emplace(pods[i].name, i);
  for (const auto& [uid, packed] : found->second) {
    Pod removed = packed.unpack().pod;
    const auto same_name = existing.find(removed.name);
    if (same_name == existing.end()) {
      existing.emplace(removed.name, pods.size());
      pods.push_back(std::move(removed));
    } else if (Pod& pod = pods[same_name->second]; pod.uid == uid) {
      pod = std::move(removed);
    }
  }
}

}  // namespace oarlock::control
