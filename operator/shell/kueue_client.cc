#include "operator/shell/kueue_client.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/json_access.h"
#include "kube/client/request.h"
#include "operator/shell/cache.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;
using ErrorKind = kube::ApiErrorKind;

constexpr size_t kMaxObject = 4u << 20;

// Jobs that are admitted together have the same few flavors. After a change of a flavor, pods are created with its old
// node labels for at most this time.
constexpr std::chrono::seconds kFlavorLifetime{10};

kube::Resource kueue_resource(const char* plural) { return {kKueueGroup, kKueueVersion, plural}; }

kube::ApiError make_error(ErrorKind kind, std::string message) {
  kube::ApiError error;
  error.kind = kind;
  error.message = std::move(message);
  return error;
}

// Reports an object that an admission or a job names, and that does not exist, as an error that only a user can
// correct.
kube::ApiError explain_missing(kube::ApiError error, const std::string& what) {
  if (error.kind != ErrorKind::kNotFound) return error;
  return make_error(ErrorKind::kInvalid, fmt::format("{} does not exist", what));
}

}  // namespace

kube::ApiResult<Job> KueueClient::place(const Job& job, const Admission& admission) const {
  std::vector<Json> flavors;
  for (const std::string& name : admission.flavors) {
    auto read = flavor(name);
    if (!read) return tl::make_unexpected(read.error());
    flavors.push_back(*std::move(read));
  }
  Result<Job> placed = with_admission(job, admission, flavors);
  if (!placed) return tl::make_unexpected(make_error(ErrorKind::kInvalid, placed.error().message));
  return *std::move(placed);
}

kube::ApiResult<Json> KueueClient::flavor(const std::string& name) const {
  const SteadyTime now = clock_->steady();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(flavors_, [&](const auto& known) { return now - known.second.read_at >= kFlavorLifetime; });
    if (const auto known = flavors_.find(name); known != flavors_.end()) return known->second.object;
  }
  const auto response = client_.get(kueue_resource("resourceflavors"), {"", name}, {});
  if (!response) return tl::make_unexpected(explain_missing(response.error(), "ResourceFlavor " + name));
  const Json object = parse_untrusted_json(*response, kMaxObject);
  // Pods without the node labels of their flavor would use the quota of another one.
  if (!object.is_object())
    return tl::make_unexpected(make_error(ErrorKind::kServer, fmt::format("ResourceFlavor {} cannot be read", name)));
  Json out = {{"metadata", {{"name", name}}}, {"spec", member(object, "spec")}};
  const std::lock_guard lock(mutex_);
  flavors_[name] = {out, now};
  return out;
}

kube::ApiResult<void> KueueClient::check_prebuilt(const Job& job, const Json& pod) const {
  const std::string name = prebuilt_workload(job);
  const auto live = client_.get(resource_of(ResourceKind::kWorkload), {job.metadata.namespace_name, name}, {});
  if (!live) return tl::make_unexpected(explain_missing(live.error(), "Workload " + name));
  const std::string problem = prebuilt_problem(parse_untrusted_json(*live, kMaxObject), pod);
  if (!problem.empty()) return tl::make_unexpected(make_error(ErrorKind::kInvalid, problem));
  return {};
}

kube::ApiResult<std::optional<WorkloadPriority>> KueueClient::named_priority(const Job& job, const Json& pod) const {
  std::optional<WorkloadPriority> priority = find_priority(job, pod);
  if (!priority) return priority;
  const bool is_of_kueue = priority->group == kKueueGroup;
  const kube::Resource resource = is_of_kueue ? kueue_resource("workloadpriorityclasses")
                                              : kube::Resource{priority->group, "v1", "priorityclasses"};
  const auto response = client_.get(resource, {"", priority->name}, {});
  if (!response) {
    return tl::make_unexpected(explain_missing(response.error(), fmt::format("{} {}", priority->kind, priority->name)));
  }
  priority->value = integer_at<int32_t>(parse_untrusted_json(*response, kMaxObject), "value", 0);
  return priority;
}

// The class of the job may have changed since. With a higher one, Kueue would preempt the Workload that is replaced.
kube::ApiResult<std::optional<WorkloadPriority>> KueueClient::replaced_priority(const kube::ObjectKey& replaced) const {
  const auto live = client_.get(resource_of(ResourceKind::kWorkload), replaced, {});
  if (!live) return tl::make_unexpected(live.error());
  const Json workload = parse_untrusted_json(*live, kMaxObject);
  const Json& spec = member(workload, "spec");
  const Json& reference = member(spec, "priorityClassRef");
  if (!reference.is_object()) return std::nullopt;
  return WorkloadPriority{text_at(reference, "group"), text_at(reference, "kind"), text_at(reference, "name"),
                          integer_at<int32_t>(spec, "priority", 0)};
}

kube::ApiResult<std::string> KueueClient::workload(const Job& job, const CreateWorkload& create,
                                                   const Json& pod) const {
  const auto priority = create.replaces.empty() ? named_priority(job, pod)
                                                : replaced_priority({job.metadata.namespace_name, create.replaces});
  if (!priority) return tl::make_unexpected(priority.error());
  return dump_json(desired_workload(job, create, pod, *priority));
}

kube::ApiResult<std::string> KueueClient::update(const kube::ObjectKey& workload, const UpdateWorkload& change) const {
  const kube::Resource resource = resource_of(ResourceKind::kWorkload);
  const auto live = client_.get(resource, workload, {});
  if (!live) return live;
  const std::optional<Json> patch = workload_status_patch(parse_untrusted_json(*live, kMaxObject), change);
  if (!patch) return tl::make_unexpected(make_error(ErrorKind::kConflict, "the Workload has changed"));
  return client_.patch_status(resource, workload, dump_json(*patch), {});
}

}  // namespace oarlock::control
