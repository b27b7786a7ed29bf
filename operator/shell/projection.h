// From the API server's JSON to what the decision reads, and nothing more: this is what the cache holds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/error.h"
#include "operator/core/model.h"
#include "operator/kube/field_filter.h"

namespace oarlock::control {

// With the job that its label names, by which it is found in the cache.
struct CachedPod {
  Pod pod;
  std::string job;
};
struct CachedService {
  Service service;
  std::string job;
};

// The fields that each function below reads.
kube::FieldFilter job_fields();
kube::FieldFilter pod_fields();
kube::FieldFilter service_fields();

Result<Job> project_job(const nlohmann::json& object);
Result<CachedPod> project_pod(const nlohmann::json& object);
Result<CachedService> project_service(const nlohmann::json& object);

// What the answer to a write tells of the object; empty where the answer is not an object.
struct Written {
  std::string uid;
  std::string resource_version;
  std::string owner_uid;  // of the controller
};
Written read_written(const std::string& answer);

}  // namespace oarlock::control
