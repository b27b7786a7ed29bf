// Objects with names that jobs need, which belong to other owners or lack the label of the job.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "kube/client/client.h"
#include "operator/core/model.h"
#include "operator/shell/cache.h"

namespace oarlock::control {

// Such an object is not in the cache, so each reconcile of the job reads it from the API server until it no longer
// exists or the label is restored. Thread-safe.
class NameConflicts {
 public:
  struct Object {
    ResourceKind kind;
    kube::ObjectKey key;
    auto operator<=>(const Object&) const = default;
  };

  explicit NameConflicts(kube::Client client) : client_(std::move(client)) {}

  void record(const std::string& job_uid, const Object& object);
  void forget(const std::string& job_uid);
  // Reads the objects that were recorded for the observed job, and adds those that exist.
  void add_to(Observed& observed);

 private:
  void forget(const std::string& job_uid, const Object& object);

  const kube::Client client_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::set<Object>> objects_;  // by the uid of the job; guarded by mutex_
};

}  // namespace oarlock::control
