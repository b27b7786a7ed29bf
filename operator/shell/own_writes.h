// The resource versions that the operator's writes produced, so that it reads its own writes from an asynchronous
// cache.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/clock.h"
#include "operator/shell/cache.h"

namespace oarlock::control {

// Records the resource versions that the operator's writes produced. A job is not reconciled before the cache contains
// all of them (KEP-5647); otherwise a stale cache would cause the same work to be done twice.
//
// Jobs are identified by uid, so a new job of the same name starts without records. Thread-safe.
class OwnWrites {
 public:
  explicit OwnWrites(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

  // Records a version that a write, or a live read, returned. An empty version is ignored.
  void record(const std::string& job_uid, ResourceKind kind, const std::string& resource_version);

  // Whether the cache contains all recorded versions of the job. `has_seen` is Cache::has_seen for the job's namespace.
  // Records expire after five minutes, because versions restart when the cluster's store is restored from a backup.
  bool is_cache_fresh(const std::string& job_uid,
                      const std::function<bool(ResourceKind, const std::string&)>& has_seen);

  void forget(const std::string& job_uid);

 private:
  struct Write {
    std::string resource_version;
    SteadyTime at;
  };

  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unordered_map<int, Write>> writes_;  // the newest version, by uid and kind
};

}  // namespace oarlock::control
