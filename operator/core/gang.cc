#include "operator/core/gang.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_access.h"
#include "operator/core/desired.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr char kVolcanoScheduler[] = "volcano";

constexpr GangApiNames kGangApis[] = {{GangApi::kNative, "scheduling.k8s.io", "v1beta1"},
                                      {GangApi::kSchedulerPlugins, "scheduling.x-k8s.io", "v1alpha1"},
                                      {GangApi::kVolcano, "scheduling.volcano.sh", "v1beta1"}};

Json parse_template(const Job& job) {
  Json out = Json::parse(job.spec.pod_template, nullptr, false);
  return out.is_object() ? out : Json::object();
}

std::string name_in(const Json& pod, GangApi api) {
  const Json& metadata = member(pod, "metadata");
  switch (api) {
    case GangApi::kNative:
      return text_at(member(member(pod, "spec"), "schedulingGroup"), "podGroupName");
    case GangApi::kSchedulerPlugins:
      return text_at(member(metadata, "labels"), kPodGroupLabel);
    case GangApi::kVolcano:
      return text_at(member(metadata, "annotations"), kGroupNameAnnotation);
  }
  return "";
}

// Returns how many pods must start together.
int minimum(const Job& job) {
  const int nodes = job.group_nodes();
  return job.spec.elastic ? std::min(job.spec.elastic->min_nodes, nodes) : nodes;
}

// Returns the API that the scheduler of the template reads. Volcano's pods need its scheduler. Kubernetes' scheduler
// reads the native API; one with another name is probably that of scheduler-plugins.
std::optional<GangApi> choose_api(const Json& pod, const std::vector<GangApi>& served) {
  const std::string scheduler = text_at(member(pod, "spec"), "schedulerName");
  const bool is_default = scheduler.empty() || scheduler == "default-scheduler";
  std::vector<GangApi> order = {GangApi::kSchedulerPlugins, GangApi::kNative};
  if (is_default) std::ranges::reverse(order);
  if (scheduler == kVolcanoScheduler) order = {GangApi::kVolcano};
  const auto found = std::ranges::find_first_of(order, served);
  return found == order.end() ? std::nullopt : std::optional(*found);
}

Json spec_of(const Job& job, GangApi api) {
  if (api == GangApi::kSchedulerPlugins) return {{"minMember", minimum(job)}};
  const Json pod = parse_template(job);
  Json out = Json::object();
  // Kubernetes' scheduler refuses pods whose priority is not that of their PodGroup.
  if (const std::string priority = text_at(member(pod, "spec"), "priorityClassName"); !priority.empty())
    out["priorityClassName"] = priority;
  if (api == GangApi::kNative) {
    out["schedulingPolicy"] = {{"gang", {{"minCount", minimum(job)}}}};
    // The scheduler then tries each domain for the whole group; by the affinity of the pods alone, it would only try
    // the domain of the first pod. An API server without the feature gate drops the field.
    const auto& topology = job.spec.scheduling.topology;
    if (topology && topology->mode != api::TopologyMode::kPreferred)
      out["schedulingConstraints"] = {{"topology", Json::array({{{"key", topology->key}}})}};
    return out;
  }
  out["minMember"] = minimum(job);
  const std::string queue = text_at(member(member(pod, "metadata"), "annotations"), kVolcanoQueue);
  if (!queue.empty()) out["queue"] = queue;
  return out;
}

bool needs(const std::vector<const Pod*>& pods, const PodGroup& group) {
  return std::ranges::any_of(pods, [&](const Pod* pod) {
    return pod != nullptr && is_live(*pod) && pod->gang == Gang{group.api, group.name};
  });
}

}  // namespace

std::span<const GangApiNames> gang_apis() { return kGangApis; }

const GangApiNames& names_of(GangApi api) { return *std::ranges::find(kGangApis, api, &GangApiNames::api); }

std::optional<Gang> read_gang(const Json& pod) {
  for (const GangApiNames& one : kGangApis) {
    if (std::string name = name_in(pod, one.api); !name.empty()) return Gang{one.api, std::move(name)};
  }
  return std::nullopt;
}

Job with_gang(const Job& job, const Gang& gang) {
  Json pod = parse_template(job);
  Json& metadata = map_in(pod, "metadata");
  switch (gang.api) {
    case GangApi::kNative:
      map_in(map_in(pod, "spec"), "schedulingGroup")["podGroupName"] = gang.pod_group;
      break;
    case GangApi::kSchedulerPlugins:
      map_in(metadata, "labels")[kPodGroupLabel] = gang.pod_group;
      break;
    case GangApi::kVolcano:
      map_in(metadata, "annotations")[kGroupNameAnnotation] = gang.pod_group;
      break;
  }
  Job out = job;
  out.spec.pod_template = dump_json(pod);
  return out;
}

std::optional<Gang> find_gang(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const std::string name = pod_group_name(job, job.status.attempt);
  std::optional<Gang> of_peers;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    if (is_recorded_finished(members, rank)) return std::nullopt;
    if (pod == nullptr) continue;
    if (!pod->gang || pod->gang->pod_group != name || has_node(*pod)) return std::nullopt;
    of_peers = pod->gang;
  }
  if (!of_peers && observed.gang_apis.empty()) return std::nullopt;
  const Json pod = parse_template(job);
  if (read_gang(pod)) return std::nullopt;
  if (of_peers) return of_peers;
  if (members.pod_group != nullptr) return Gang{members.pod_group->api, name};
  const std::optional<GangApi> api = minimum(job) < 2 ? std::nullopt : choose_api(pod, observed.gang_apis);
  if (!api) return std::nullopt;
  return Gang{*api, name};
}

std::vector<Action> create_pod_group(const Observed& observed, const Membership& members, std::optional<Gang> gang) {
  const Job& job = observed.job;
  for (const Pod* pod : members.current) {
    if (!gang && pod != nullptr && is_live(*pod) && !has_node(*pod)) gang = pod->gang;
  }
  const std::string name = pod_group_name(job, job.status.attempt);
  if (!gang || gang->pod_group != name) return {};
  const bool exists = members.pod_group != nullptr && members.pod_group->api == gang->api;
  if (exists || std::ranges::find(observed.gang_apis, gang->api) == observed.gang_apis.end()) return {};
  if (read_gang(parse_template(job))) return {};
  const GangApiNames& names = names_of(gang->api);
  const Json body = {{"apiVersion", fmt::format("{}/{}", names.group, names.version)},
                     {"kind", "PodGroup"},
                     {"metadata",
                      {{"name", name},
                       {"namespace", job.metadata.namespace_name},
                       {"labels", {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}}},
                       {"ownerReferences", Json::array({owner_reference(job)})}}},
                     {"spec", spec_of(job, gang->api)}};
  return {CreatePodGroup{gang->api, name, dump_json(body)}};
}

std::vector<Action> delete_pod_groups(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  std::vector<const PodGroup*> groups = members.old_pod_groups;
  const bool is_over = job.spec.suspend || is_terminal(job.status.phase);
  if (is_over && members.pod_group != nullptr) groups.push_back(members.pod_group);
  std::vector<Action> out;
  for (const PodGroup* group : groups) {
    const bool is_needed = needs(members.current, *group) || needs(members.old, *group) || needs(members.newer, *group);
    if (!group->deleting && !is_needed) out.emplace_back(DeletePodGroup{group->api, group->name, group->uid});
  }
  return out;
}

}  // namespace oarlock::control
