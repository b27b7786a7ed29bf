// Conversion of the API server's objects into the reduced form that the cache holds and the decision reads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/error.h"
#include "kube/client/field_filter.h"
#include "operator/shell/cached_objects.h"

namespace oarlock::control {

// ---- Jobs ------------------------------------------------------------------------------------------------------

// The fields that project_job() reads. spec.template and spec.trainer are kept as text.
kube::FieldFilter job_fields();

// The fields that are kept of an object that job_fields() cannot parse, for unreadable_job().
kube::FieldFilter job_salvage_fields();

// A job that violates the schema is returned with report.problem set.
Job project_job(const nlohmann::json& object);

// Returns a job that has only an identity and conditions, with `error` as report.problem.
Job unreadable_job(const nlohmann::json& salvaged, const Error& error);

// ---- Objects owned by jobs -------------------------------------------------------------------------------------

// The fields that the corresponding function reads.
kube::FieldFilter pod_fields();
kube::FieldFilter service_fields();
kube::FieldFilter network_policy_fields();
kube::FieldFilter workload_fields();
kube::FieldFilter pod_group_fields();
kube::FieldFilter node_fields();
kube::FieldFilter profile_fields();  // spec is kept as text

// These accept any JSON. Missing or malformed fields have their defaults, and texts are bounded. They fail if an
// identity is longer than Kubernetes permits.
Result<CachedPod> project_pod(const nlohmann::json& object);
Result<CachedService> project_service(const nlohmann::json& object);
Result<CachedNetworkPolicy> project_network_policy(const nlohmann::json& object);
Result<CachedWorkload> project_workload(const nlohmann::json& object);
Result<CachedPodGroup> project_pod_group(GangApi api, const nlohmann::json& object);
Result<CachedProfile> project_profile(const nlohmann::json& object);

CachedNode project_node(const nlohmann::json& object);

// Metadata of the object in a response to a write.
struct ObjectMetadata {
  std::string uid;
  std::string resource_version;
  std::string owner_uid;  // of the owner reference with controller=true
  bool is_deleting = false;
};

// All fields are empty if the response is not an object.
ObjectMetadata read_object_metadata(const std::string& response);

}  // namespace oarlock::control
