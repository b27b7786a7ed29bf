#include "operator/shell/own_writes.h"

#include <chrono>

#include "kube/client/request.h"

namespace oarlock::control {
namespace {
constexpr auto kExpiry = std::chrono::minutes(5);
}

void OwnWrites::record(const std::string& job_uid, ResourceKind kind, const std::string& resource_version) {
  if (resource_version.empty()) return;
  const std::lock_guard lock(mutex_);
  Write& write = writes_[job_uid][static_cast<int>(kind)];
  if (kube::compare_resource_versions(write.resource_version, resource_version) < 0)
    write.resource_version = resource_version;
  write.at = clock_->steady();
}

bool OwnWrites::is_cache_fresh(const std::string& job_uid,
                               const std::function<bool(ResourceKind, const std::string&)>& has_seen) {
  const std::lock_guard lock(mutex_);
  const auto it = writes_.find(job_uid);
  if (it == writes_.end()) return true;
  const SteadyTime now = clock_->steady();
  std::erase_if(it->second, [&](const auto& entry) {
    return now - entry.second.at > kExpiry ||
           has_seen(static_cast<ResourceKind>(entry.first), entry.second.resource_version);
  });
  if (!it->second.empty()) return false;
  writes_.erase(it);
  return true;
}

void OwnWrites::forget(const std::string& job_uid) {
  const std::lock_guard lock(mutex_);
  writes_.erase(job_uid);
}

}  // namespace oarlock::control
