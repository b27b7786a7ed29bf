// Read your own writes: after the operator has written for a job, the job is not looked at again before the cache has
// what was written (KEP-5647). Otherwise a cache that lags would have the work done twice.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "common/clock.h"
#include "operator/shell/cache.h"

namespace oarlock::control {

// Thread-safe. Keyed by the job's uid, so a new job of the same name inherits nothing.
class OwnWrites {
 public:
  explicit OwnWrites(std::shared_ptr<const Clock> clock) : clock_(std::move(clock)) {}

  // An answer to a write (or a live read) showed this version.
  void record(const std::string& job_uid, Kind kind, const std::string& resource_version);

  // Is all of it in the cache? `has_seen` is Cache::has_seen for the job's namespace. What was written more than five
  // minutes ago counts as seen: versions may start anew when the cluster's store is restored from a backup.
  bool seen(const std::string& job_uid, const std::function<bool(Kind, const std::string&)>& has_seen);

  void forget(const std::string& job_uid);

 private:
  struct Write {
    std::string resource_version;
    SteadyTime at;
  };

  const std::shared_ptr<const Clock> clock_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unordered_map<int, Write>> writes_;  // by uid, then kind: the newest
};

}  // namespace oarlock::control
