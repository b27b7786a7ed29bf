#include "operator/shell/removed_pods.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "api/rules.h"
#include "operator/core/pod_failure.h"
#include "operator/core/pods.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

// Whether the status of the job records neither that the pod was done nor that another one replaces it.
bool is_unrecorded(const Job& job, const Pod& pod) {
  if (job.spec.is_managed_elsewhere() || job.metadata.deletion_timestamp) return false;
  const std::optional<PodIdentity> id = parse_pod_name(job, pod.name);
  if (!id || pod.owner_uid != job.metadata.uid || is_terminal(job.status.phase)) return false;
  if (id->attempt < job.status.attempt || id->node_rank >= api::rules::kMaxNodes) return false;
  // The group of a later attempt may be larger.
  if (id->attempt == job.status.attempt && id->node_rank >= job.group_nodes()) return false;
  const bool is_replaced = std::ranges::any_of(job.status.replacements, [&](const api::Replacement& replacement) {
    return replacement.attempt == id->attempt && replacement.pod_uid == pod.uid;
  });
  if (is_replaced) return false;
  const BoxedOptional<api::FinishedRanks>& recorded = job.status.finished_ranks;
  if (!recorded || recorded->attempt != id->attempt) return true;
  const auto rank = static_cast<size_t>(id->node_rank);
  return !parse_rank_set(recorded->node_ranks, rank + 1)[rank];
}

// The failure rules of a trimmed job are not in memory. Any pod that ended on its own is kept; whether a rule ignores
// its failure is decided once the whole job has been read.
bool may_be_done(const Job& job, const Pod& pod) {
  if (job.report.is_trimmed) return pod.trainer && (has_succeeded(pod) || ended_before_stop(pod));
  return is_done(job, pod);
}

// Whether a removed pod shows why it is missing in a running group. The operator itself deletes pods only after the
// status has recorded another phase or attempt.
bool shows_cause(const Job& job, const Pod& pod) {
  return is_running(job.status.phase) && (has_ended(pod) || pod.deleting);
}

// Whether a decision about the job may depend on a pod that is gone, or only marked for deletion.
bool is_needed(const Job& job, const Pod& pod, bool is_gone) {
  return is_unrecorded(job, pod) && (may_be_done(job, pod) || (is_gone && shows_cause(job, pod)));
}

}  // namespace

void RemovedPods::add(const kube::ObjectKey& job, const CachedPod& last, bool is_gone, const FindJob& find_job) {
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<const Job> owner = find_job();
  if (owner == nullptr || !is_needed(*owner, last.object, is_gone)) return;
  const auto known = pods_.find(job);
  if (known != pods_.end() && known->second.contains(last.object.uid)) return;
  if (known != pods_.end() && known->second.size() >= kMaxOfJob) {
    drop_from(known);
  } else if (count_ >= kMaxPods) {
    drop_from_largest();
  }
  pods_[job].emplace(last.object.uid, last);
  ++count_;
}

void RemovedPods::drop_from(Pods::iterator job) {
  job->second.erase(job->second.begin());
  if (job->second.empty()) pods_.erase(job);
  --count_;
}

// Of the namespace with the most pods, so that one tenant does not take the place of the others.
void RemovedPods::drop_from_largest() {
  std::unordered_map<std::string_view, size_t> by_namespace;
  for (const auto& [job, removed] : pods_) by_namespace[job.namespace_name] += removed.size();
  drop_from(std::ranges::max_element(pods_, {}, [&by_namespace](const auto& entry) {
    return std::pair(by_namespace[entry.first.namespace_name], entry.second.size());
  }));
}

void RemovedPods::forget_recorded(const kube::ObjectKey& key, const Job* job) {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(key);
  if (found == pods_.end()) return;
  count_ -= std::erase_if(
      found->second, [&](const auto& entry) { return job == nullptr || !is_needed(*job, entry.second.object, true); });
  if (found->second.empty()) pods_.erase(found);
}

void RemovedPods::append_to(const kube::ObjectKey& job, std::vector<Pod>& pods) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(job);
  if (found == pods_.end()) return;
  std::unordered_map<std::string, size_t> existing;
  for (size_t i = 0; i < pods.size(); ++i) existing.emplace(pods[i].name, i);
  for (const auto& [uid, cached] : found->second) {
    const Pod& removed = cached.object;
    const auto same_name = existing.find(removed.name);
    if (same_name == existing.end()) {
      existing.emplace(removed.name, pods.size());
      pods.push_back(removed);
    } else if (Pod& pod = pods[same_name->second]; pod.uid == uid) {
      pod = removed;
    }
  }
}

}  // namespace oarlock::control
