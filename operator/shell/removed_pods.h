// Finished pods that have been removed from the cluster before their job's status recorded them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/kube/client/request.h"
#include "operator/shell/projection.h"

namespace oarlock::control {

// Keeps the last state of pods that were done, until the job's status records their ranks (FinishedRanks). An operator
// process, leader or standby, thus loses no finished rank, however soon after its success a pod is removed. The pods
// are held in this process only; they do not survive its restart.
//
// Pods are forgotten when their job is deleted, has finished or has recorded their ranks, so at most the pods of the
// current attempts of active jobs are held. Thread-safe.
class RemovedPods {
 public:
  using FindJob = std::function<std::shared_ptr<const Job>()>;

  // Records the pod if it was done and its job has not recorded it. `last` is the last state before the pod was marked
  // for deletion or disappeared. `find_job` returns the newest cached state of the job, or null; every later change of
  // the job must be passed to forget_recorded().
  void add(const kube::ObjectKey& job, const CachedPod& last, const FindJob& find_job);

  // Forgets the pods that the changed job no longer needs; all of them if `job` is null, which means deleted.
  void forget_recorded(const kube::ObjectKey& key, const Job* job);

  // Adds the removed pods of the job to `pods`. A pod that is still being deleted is replaced by its recorded state. If
  // another pod has taken the name, the recorded one is left out.
  void append_to(const kube::ObjectKey& job, std::vector<Pod>& pods) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unordered_map<std::string, PackedPod>>
      pods_;  // by the job's key and the pod's uid
};

}  // namespace oarlock::control
