#include "operator/core/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "operator/core/desired.h"
#include "operator/core/pod_requests.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr char kJobUidLabel[] = "kueue.x-k8s.io/job-uid";
constexpr char kPodSetLabel[] = "kueue.x-k8s.io/podset";
constexpr char kWorkloadAnnotation[] = "kueue.x-k8s.io/workload";
constexpr char kReplacementFor[] = "kueue.x-k8s.io/workload-slice-replacement-for";
constexpr char kTopologyGate[] = "kueue.x-k8s.io/topology";

// Copies the named members that `from` has.
template <size_t N>
Json selection(const Json& from, const std::array<const char*, N>& names) {
  Json out = Json::object();
  for (const char* name : names) {
    const auto found = from.find(name);
    if (found != from.end()) out[name] = *found;
  }
  return out;
}

// Makes texts of fractions. Pods accept them as numbers, as YAML has them (cpu: 0.5); the schema of a Workload does
// not.
void convert_fractions(Json& quantities) {
  if (!quantities.is_object()) return;
  for (Json& quantity : quantities) {
    if (quantity.is_number_float()) quantity = dump_json(quantity);
  }
}

// Converts the resources of a pod or of a container.
void convert_resources(Json& parent) {
  const auto resources = parent.find("resources");
  if (resources == parent.end() || !resources->is_object()) return;
  for (const char* key : {"requests", "limits"}) {
    if (const auto quantities = resources->find(key); quantities != resources->end()) convert_fractions(*quantities);
  }
}

Json containers_of(const Json& spec, const char* list) {
  constexpr std::array kFields = {"name", "image", "resources", "restartPolicy"};
  Json out = Json::array();
  for (const Json& container : elements(spec, list)) convert_resources(out.emplace_back(selection(container, kFields)));
  return out;
}

// Without environments, commands and volumes, which neither Kueue nor a provisioner of nodes needs.
Json template_of(const Job& job, const Json& pod) {
  constexpr std::array kFields = {"nodeSelector",  "affinity",         "tolerations",       "topologySpreadConstraints",
                                  "schedulerName", "runtimeClassName", "priorityClassName", "overhead",
                                  "resources",     "resourceClaims",   "restartPolicy"};
  const Json& spec = member(pod, "spec");
  Json out = selection(spec, kFields);
  convert_resources(out);
  if (const auto overhead = out.find("overhead"); overhead != out.end()) convert_fractions(*overhead);
  out["containers"] = containers_of(spec, "containers");
  if (Json init = containers_of(spec, "initContainers"); !init.empty()) out["initContainers"] = std::move(init);
  Json labels = {{kLabelJobName, job.metadata.name}};
  // Affinities of the pods name it.
  if (const std::string uid = text_at(member(member(pod, "metadata"), "labels"), kLabelJobUid); !uid.empty())
    labels[kLabelJobUid] = uid;
  return {{"metadata", {{"labels", std::move(labels)}}}, {"spec", std::move(out)}};
}

Json topology_request(const Json& pod) {
  const Json& annotations = member(member(pod, "metadata"), "annotations");
  Json out = Json::object();
  if (const std::string level = text_at(annotations, kRequiredTopology); !level.empty()) {
    out["required"] = level;
  } else if (const std::string preferred = text_at(annotations, kPreferredTopology); !preferred.empty()) {
    out["preferred"] = preferred;
  } else if (text_at(annotations, kUnconstrainedTopology) == "true") {
    out["unconstrained"] = true;
  }
  if (!out.empty()) out["podIndexLabel"] = kLabelNodeRank;
  return out;
}

// ---- Conditions of a Workload ------------------------------------------------------------------------------------

bool is_true(const Json& conditions, std::string_view type) {
  const Json* found = find_item(conditions, "type", type);
  return found != nullptr && text_at(*found, "status") == "True";
}

void set_condition(Json& conditions, const char* type, bool is_true, const std::string& reason,
                   const std::string& message, SystemTime now) {
  constexpr size_t kMaxMessage = 32 * 1024;
  const char* status = is_true ? "True" : "False";
  const Json* before = find_item(conditions, "type", type);
  Json next = {{"type", type},
               {"status", status},
               {"reason", reason},
               {"message", message.substr(0, kMaxMessage)},
               {"lastTransitionTime", to_rfc3339(now)}};
  if (before != nullptr && text_at(*before, "status") == status && before->contains("lastTransitionTime"))
    next["lastTransitionTime"] = (*before)["lastTransitionTime"];
  if (before != nullptr && before->contains("observedGeneration"))
    next["observedGeneration"] = (*before)["observedGeneration"];
  std::erase_if(conditions.get_ref<Json::array_t&>(), [&](const Json& one) { return text_at(one, "type") == type; });
  conditions.push_back(std::move(next));
}

// As JobReconciler::ReconcileGenericJob of Kueue does once an evicted job has stopped: a preempted Workload is queued
// again immediately, the others when Kueue's own delay is over or an administrator acts.
// REQUIRES: there is a condition Evicted.
void release(Json& conditions, SystemTime now) {
  const Json& evicted = *find_item(conditions, "type", "Evicted");  // until the first change
  std::string reason = text_at(evicted, "reason");
  const std::string message = text_at(evicted, "message");
  // Kueue compares the reason when the Workload is activated again.
  if (reason.starts_with("Deactivated")) reason = "Deactivated";
  const bool is_queued = reason == "Preempted" || reason == "NodeFailures";
  set_condition(conditions, "Requeued", is_queued, reason, message, now);
  set_condition(conditions, "QuotaReserved", false, "Pending", message, now);
  set_condition(conditions, "Admitted", false, "NoReservation", "The workload has no reservation", now);
  set_condition(conditions, "PodsReady", false, "WaitForStart", "the pods have stopped", now);
}

// ---- Placement ---------------------------------------------------------------------------------------------------

// Adds the entries of a map of strings to the map parent[key]. Returns the key of the first one that has another value
// already; empty if there is none.
std::string add_entries(const Json& from, Json& parent, const char* key) {
  if (!from.is_object() || from.empty()) return "";
  Json& to = map_in(parent, key);
  for (const auto& [name, value] : from.items()) {
    const auto known = to.find(name);
    if (known != to.end() && *known != value) return name;
    to[name] = value;
  }
  return "";
}

void add_items(const Json& from, Json& parent, const char* key) {
  if (!from.is_array() || from.empty()) return;
  Json& to = list_in(parent, key);
  for (const Json& item : from) {
    if (std::ranges::find(to, item) == to.end()) to.push_back(item);
  }
}

// Applies the members nodeSelector, tolerations, labels and annotations.
Result<void> apply(const std::string& source, const Json& update, Json& pod) {
  constexpr std::pair<const char*, const char*> kMaps[] = {
      {"spec", "nodeSelector"}, {"metadata", "labels"}, {"metadata", "annotations"}};
  for (const auto& [part, field] : kMaps) {
    const std::string key = add_entries(member(update, field), pod[part], field);
    if (key.empty()) continue;
    return fail(ExitCode::kConfig,
                fmt::format("{} requires another value of {} in the {} of the pods than spec.template or another part "
                            "of the admission; remove it from the template, or choose another queue",
                            source, key, field));
  }
  add_items(member(update, "tolerations"), pod["spec"], "tolerations");
  return {};
}

void request_topology(const Job& job, Json& pod) {
  Json& annotations = map_in(pod["metadata"], "annotations");
  if (topology_request(pod).empty()) annotations[kUnconstrainedTopology] = "true";
  annotations[kWorkloadAnnotation] = workload_name(job);
  map_in(pod["metadata"], "labels")[kPodSetLabel] = kPodSet;
  add_items(Json::array({{{"name", kTopologyGate}}}), pod["spec"], "schedulingGates");
}

}  // namespace

std::string prebuilt_workload(const Job& job) {
  return job.status.queue && !job.spec.is_managed_by_multikueue() ? job.status.queue->workload : "";
}

std::string workload_name(const Job& job, int slice) {
  constexpr size_t kDigest = 8;
  if (std::string given = prebuilt_workload(job); !given.empty() && slice == 1) return given;
  std::string first =
      fmt::format("trainingjob-{}-{}", job.metadata.name, spec_digest(Json(job.metadata.uid)).substr(0, kDigest));
  return slice == 1 ? first : fmt::format("{}-{}", first, slice);
}

std::optional<int> workload_slice(const Job& job, std::string_view name) {
  if (name == workload_name(job)) return 1;
  int slice = 0;
  const std::string_view digits = name.substr(name.rfind('-') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), slice);
  return slice > 1 && name == workload_name(job, slice) ? std::optional(slice) : std::nullopt;
}

std::optional<WorkloadPriority> find_priority(const Job& job, const Json& pod) {
  if (!job.metadata.priority_class.empty())
    return WorkloadPriority{kKueueGroup, "WorkloadPriorityClass", job.metadata.priority_class};
  std::string name = text_at(member(pod, "spec"), "priorityClassName");
  if (name.empty()) return std::nullopt;
  return WorkloadPriority{"scheduling.k8s.io", "PriorityClass", std::move(name)};
}

Json desired_workload(const Job& job, const CreateWorkload& create, const Json& pod,
                      const std::optional<WorkloadPriority>& priority) {
  Json pod_set = {{"name", kPodSet}, {"count", create.nodes}, {"template", template_of(job, pod)}};
  if (create.min_nodes) pod_set["minCount"] = *create.min_nodes;
  if (Json topology = topology_request(pod); !topology.empty()) pod_set["topologyRequest"] = std::move(topology);
  Json spec = {{"queueName", create.queue}, {"podSets", Json::array({std::move(pod_set)})}};
  if (priority) {
    spec["priorityClassRef"] = {{"group", priority->group}, {"kind", priority->kind}, {"name", priority->name}};
    spec["priority"] = priority->value;
  }
  Json metadata = {
      {"name", create.name},
      {"namespace", job.metadata.namespace_name},
      {"labels",
       {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}, {kJobUidLabel, job.metadata.uid}}},
      {"ownerReferences", Json::array({owner_reference(job)})}};
  if (!create.replaces.empty())
    metadata["annotations"][kReplacementFor] = fmt::format("{}/{}", job.metadata.namespace_name, create.replaces);
  return {{"apiVersion", fmt::format("{}/{}", kKueueGroup, kKueueVersion)},
          {"kind", "Workload"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

std::string prebuilt_problem(const Json& live, const Json& pod) {
  constexpr double kPrecision = 1e-9;  // of amounts in different units
  const std::string name = text_at(member(live, "metadata"), "name");
  const Json& pod_sets = elements(member(live, "spec"), "podSets");
  if (pod_sets.size() != 1)
    return fmt::format("Workload {} has {} podSets; that of a TrainingJob has one", name, pod_sets.size());
  PodRequests admitted = pod_requests(member(member(pod_sets.front(), "template"), "spec"));
  for (const auto& [resource, amount] : pod_requests(member(pod, "spec"))) {
    const double limit = admitted[resource];
    if (amount <= limit * (1 + kPrecision)) continue;
    return fmt::format(
        "each pod of the job requests {} of {}, and Workload {} was admitted for {}; use the template "
        "and the TrainingProfile of the manager cluster",
        amount, resource, name, limit);
  }
  return "";
}

bool admits_pods(const Workload& workload) {
  return workload.admitted && !workload.evicted && !workload.finished && !workload.deleting;
}

std::optional<Json> workload_status_patch(const Json& live, const UpdateWorkload& change) {
  using Change = UpdateWorkload::Change;
  const SystemTime now = change.time;
  const Json& metadata = member(live, "metadata");
  if (text_at(metadata, "uid") != change.uid) return std::nullopt;
  Json conditions = member(member(live, "status"), "conditions");
  if (!conditions.is_array()) conditions = Json::array();
  const Json* ready = find_item(conditions, "type", "PodsReady");
  const bool was_ready = ready != nullptr && text_at(*ready, "reason") == "WaitForRecovery";
  Json status = Json::object();
  switch (change.change) {
    case Change::kRelease:
      if (!is_true(conditions, "Evicted") || !is_true(conditions, "QuotaReserved")) return std::nullopt;
      release(conditions, now);
      status["admission"] = nullptr;
      break;
    case Change::kReady:
      set_condition(conditions, "PodsReady", true, was_ready ? "Recovered" : "Started", "all pods have started", now);
      break;
    case Change::kNotReady:
      set_condition(conditions, "PodsReady", false, "WaitForRecovery", "pods are starting again", now);
      break;
    case Change::kSucceed:
    case Change::kFail:
      set_condition(conditions, "Finished", true, change.change == Change::kSucceed ? "Succeeded" : "Failed",
                    change.message, now);
      break;
  }
  status["conditions"] = std::move(conditions);
  return Json{{"metadata", {{"uid", change.uid}, {"resourceVersion", text_at(metadata, "resourceVersion")}}},
              {"status", std::move(status)}};
}

Result<Job> with_admission(const Job& job, const Admission& admission, const std::vector<Json>& flavors) {
  // As PodFactory does, with values of other types replaced, so that every pod is placed.
  Json pod = Json::parse(job.spec.pod_template, nullptr, false);
  if (!pod.is_object()) pod = Json::object();
  for (const char* part : {"metadata", "spec"}) map_in(pod, part);
  for (const Json& flavor : flavors) {
    const Json& spec = member(flavor, "spec");
    const std::string source = fmt::format("ResourceFlavor {}", text_at(member(flavor, "metadata"), "name"));
    const Json update = {{"nodeSelector", member(spec, "nodeLabels")}, {"tolerations", member(spec, "tolerations")}};
    RETURN_IF_ERROR(apply(source, update, pod));
  }
  const Json updates = Json::parse(admission.pod_updates, nullptr, false);
  for (const Json& update : updates.is_array() ? updates : Json::array())
    RETURN_IF_ERROR(apply("an admission check", update, pod));
  if (admission.has_topology) request_topology(job, pod);
  Job out = job;
  out.spec.pod_template = dump_json(pod);
  return out;
}

}  // namespace oarlock::control
