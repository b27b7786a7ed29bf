// From the API server's JSON to what the decision reads, and nothing more: this is what the cache holds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <type_traits>

#include "common/error.h"
#include "operator/core/model.h"
#include "operator/kube/field_filter.h"
#include "operator/shell/packed.h"

namespace oarlock::control {

// With the job that its label names, by which it is found in the cache.
struct CachedPod {
  Pod pod;
  std::string job;

  bool operator==(const CachedPod&) const = default;
};
struct CachedService {
  Service service;
  std::string job;

  bool operator==(const CachedService&) const = default;
};
struct CachedNetworkPolicy {
  NetworkPolicy network_policy;
  std::string job;

  bool operator==(const CachedNetworkPolicy&) const = default;
};

// As the cache holds them. A member that is added to one of these structs must be named here too, else the structured
// bindings do not compile.
template <typename Visitor, typename T>
  requires std::is_same_v<std::remove_const_t<T>, Termination>
void pack_fields(Visitor& visit, T& termination) {
  auto& [exit_code, reason, message, finished_at] = termination;
  visit(exit_code), visit(reason), visit(message), visit(finished_at);
}
template <typename Visitor, typename T>
  requires std::is_same_v<std::remove_const_t<T>, CachedPod>
void pack_fields(Visitor& visit, T& cached) {
  auto& [name, uid, resource_version, owner_uid, owner_is_job, phase, reason, message, deleting, stop_requested_at,
         scheduled, unscheduled_message, ready, disruption, pod_ip, node_name, trainer, waiting_reason,
         waiting_message] = cached.pod;
  visit(cached.job), visit(name), visit(uid), visit(resource_version), visit(owner_uid), visit(owner_is_job);
  visit(phase), visit(reason);
  visit(message), visit(deleting), visit(stop_requested_at), visit(scheduled), visit(unscheduled_message), visit(ready),
      visit(disruption);
  visit(pod_ip), visit(node_name), visit(trainer), visit(waiting_reason), visit(waiting_message);
}
template <typename Visitor, typename T>
  requires std::is_same_v<std::remove_const_t<T>, CachedService>
void pack_fields(Visitor& visit, T& cached) {
  auto& [name, uid, owner_uid, owner_is_job, deleting, created] = cached.service;
  visit(cached.job), visit(name), visit(uid), visit(owner_uid), visit(owner_is_job), visit(deleting), visit(created);
}
template <typename Visitor, typename T>
  requires std::is_same_v<std::remove_const_t<T>, CachedNetworkPolicy>
void pack_fields(Visitor& visit, T& cached) {
  auto& [name, uid, owner_uid, owner_is_job, deleting, digest] = cached.network_policy;
  visit(cached.job), visit(name), visit(uid), visit(owner_uid), visit(owner_is_job), visit(deleting), visit(digest);
}
using PackedPod = Packed<CachedPod>;
using PackedService = Packed<CachedService>;
using PackedNetworkPolicy = Packed<CachedNetworkPolicy>;

// The fields that each function below reads.
kube::FieldFilter job_fields();
kube::FieldFilter pod_fields();
kube::FieldFilter service_fields();
kube::FieldFilter network_policy_fields();

// What job_salvage_fields() keeps of an object that job_fields() cannot read.
kube::FieldFilter job_salvage_fields();

// An object with a problem is a Job with report.problem set; unreadable_job() reports the reason of the others.
Job project_job(const nlohmann::json& object);
Job unreadable_job(const nlohmann::json& salvaged, const Error& error);
Result<CachedPod> project_pod(const nlohmann::json& object);
Result<CachedService> project_service(const nlohmann::json& object);
Result<CachedNetworkPolicy> project_network_policy(const nlohmann::json& object);

// What the answer to a write tells of the object; empty where the answer is not an object.
struct Written {
  std::string uid;
  std::string resource_version;
  std::string owner_uid;  // of the controller
};
Written read_written(const std::string& answer);

}  // namespace oarlock::control
