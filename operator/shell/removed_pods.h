// Pods that were done and are being removed or gone, for as long as the job's status does not record their ranks
// (FinishedRanks). An operator that runs, as leader or standby, thus loses no finished rank, however soon after its
// success a pod is removed. The memory is the process's own: it does not survive a restart.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "operator/kube/object_key.h"
#include "operator/shell/projection.h"

namespace oarlock::control {

// Thread-safe. The pods of a job that is gone, has ended or has recorded the ranks are forgotten, so that at most the
// pods of the current attempts of active jobs are held.
class RemovedPods {
 public:
  using FindJob = std::function<std::shared_ptr<const Job>()>;

  // `last` is the state in which the pod was last seen before its removal began or, at the latest, ended. `find_job`
  // reads the newest known state of its job; a change of the job that it does not see yet must be given to
  // forget_recorded() later.
  void add(const kube::ObjectKey& job, const CachedPod& last, const FindJob& find_job);

  // The job has changed; null: it is gone.
  void forget_recorded(const kube::ObjectKey& key, const Job* job);

  // Adds the removed pods of the job to `pods`. A pod that still exists while it is deleted is shown as not being
  // deleted, which is how it was done; another pod of the same name takes precedence.
  void append_to(const kube::ObjectKey& job, std::vector<Pod>& pods) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::unordered_map<std::string, PackedPod>> pods_;  // by the job's key and pod's uid
};

}  // namespace oarlock::control
