#include "operator/shell/name_conflicts.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "operator/shell/projection.h"

namespace oarlock::control {
namespace {

// Replaces the object of the same name, or adds the object.
template <typename T>
void put(std::vector<T>& objects, T object) {
  std::erase_if(objects, [&](const T& other) { return other.name == object.name; });
  objects.push_back(std::move(object));
}

// Returns nothing if the text cannot be parsed.
template <typename T>
std::optional<T> read_object(const kube::FieldFilter& fields, const std::string& text,
                             Result<T> (*project)(const nlohmann::json&)) {
  const Result<nlohmann::json> object = fields.parse(text);
  if (!object) return std::nullopt;
  Result<T> projected = project(*object);
  return projected ? std::optional<T>(*std::move(projected)) : std::nullopt;
}

}  // namespace

void NameConflicts::record(const std::string& job_uid, const Object& object) {
  const std::lock_guard lock(mutex_);
  objects_[job_uid].insert(object);
}

void NameConflicts::forget(const std::string& job_uid) {
  const std::lock_guard lock(mutex_);
  objects_.erase(job_uid);
}

void NameConflicts::add_to(Observed& observed) {
  const std::string& job_uid = observed.job.metadata.uid;
  std::set<Object> objects;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = objects_.find(job_uid); it != objects_.end()) objects = it->second;
  }
  for (const Object& object : objects) {
    const auto response = client_.get(resource_of(object.kind), object.key, {});
    if (!response) {
      if (response.error().kind == kube::ApiErrorKind::kNotFound) forget(job_uid, object);
      continue;
    }
    switch (object.kind) {
      case ResourceKind::kPod:
        if (auto pod = read_object(pod_fields(), *response, project_pod)) {
          pod->object.unlabeled = pod->job != observed.job.metadata.name;
          // The informer reports a pod of the job again once it has its label back.
          if (!pod->object.unlabeled && pod->object.owner_uid == job_uid) forget(job_uid, object);
          put(observed.pods, std::move(pod->object));
        }
        break;
      case ResourceKind::kService:
        if (auto service = read_object(service_fields(), *response, project_service))
          put(observed.services, std::move(service->object));
        break;
      case ResourceKind::kNetworkPolicy:
        if (auto policy = read_object(network_policy_fields(), *response, project_network_policy))
          put(observed.network_policies, std::move(policy->object));
        break;
      case ResourceKind::kJob:  // an object of another kind cannot have a job's name
      case ResourceKind::kWorkload:
      case ResourceKind::kPodGroup:
      case ResourceKind::kSchedulerPluginsPodGroup:
      case ResourceKind::kVolcanoPodGroup:
      case ResourceKind::kNode:
      case ResourceKind::kProfile:
        break;
    }
  }
}

void NameConflicts::forget(const std::string& job_uid, const Object& object) {
  const std::lock_guard lock(mutex_);
  const auto it = objects_.find(job_uid);
  if (it == objects_.end()) return;
  it->second.erase(object);
  if (it->second.empty()) objects_.erase(it);
}

}  // namespace oarlock::control
