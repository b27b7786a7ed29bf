// The pods that have ended and been removed from the cluster before their job's status recorded them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kube/client/request.h"
#include "operator/shell/cached_objects.h"

namespace oarlock::control {

// Keeps the last state of pods that were done, until the job's status records their ranks (FinishedRanks), and of pods
// that failed or were deleted while their group runs, until it restarts. An operator process, leader or standby, thus
// loses no finished rank and no cause, however soon a pod is removed. The pods are held in this process only; they do
// not survive its restart.
//
// Pods are forgotten when their job is deleted, has finished or has recorded their ranks, so that usually none is held
// for long. The limits bound the memory if a job records nothing, for example because its status cannot be written;
// beyond them, a rank whose pod was removed counts as lost. Thread-safe.
class RemovedPods {
 public:
  using FindJob = std::function<std::shared_ptr<const Job>()>;
  static constexpr size_t kMaxOfJob = 8192;  // two groups of the largest size
  // Of all jobs; about 28 MiB with the longest termination messages. Beyond it, a pod of the namespace with the most is
  // forgotten.
  static constexpr size_t kMaxPods = 16384;

  // Records the pod if its job has not recorded it, and it was done. If it is gone, and not only marked for deletion,
  // it is also recorded if the job runs, and it had ended or was being deleted: a reconcile that comes later decides as
  // one that would have observed it. `last` is the state before the event. `find_job` returns the newest cached state
  // of the job, or null; every later change of the job must be passed to forget_recorded().
  void add(const kube::ObjectKey& job, const CachedPod& last, bool is_gone, const FindJob& find_job);

  // Forgets the pods that the changed job no longer needs; all of them if `job` is null, which means deleted.
  void forget_recorded(const kube::ObjectKey& key, const Job* job);

  // Adds the removed pods of the job to `pods`. A pod that is still being deleted is replaced by its recorded state. If
  // another pod has taken the name, the recorded one is left out.
  void append_to(const kube::ObjectKey& job, std::vector<Pod>& pods) const;

 private:
  using Removed = std::unordered_map<std::string, CachedPod>;  // by the pod's uid

  using Pods = std::map<kube::ObjectKey, Removed>;  // by the job's key

  void drop_from(Pods::iterator job);
  void drop_from_largest();

  mutable std::mutex mutex_;
  Pods pods_;
  size_t count_ = 0;  // of all jobs
};

}  // namespace oarlock::control
