#include "operator/shell/projection.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "api/codec.h"
#include "api/profile.h"
#include "api/rules.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "operator/core/disruption.h"
#include "operator/core/gang.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

struct Owner {
  std::string uid;
  std::string job;  // name of the owner if it is a TrainingJob, otherwise empty
};

Owner owner_of(const Json& metadata) {
  for (const Json& owner : elements(metadata, "ownerReferences")) {
    if (!true_at(owner, "controller")) continue;
    const bool is_job =
        text_at(owner, "kind") == kKind && text_at(owner, "apiVersion").starts_with(std::string(kGroup) + "/");
    return {text_at(owner, "uid"), is_job ? text_at(owner, "name") : ""};
  }
  return {};
}

// The limits of Kubernetes or above.
constexpr size_t kMaxName = 253;
constexpr size_t kMaxUid = 128;

// Fails if the text is longer than the limit. The informer has already verified name, namespace and uid of the object.
Result<void> check_length(const char* field, const std::string& text, size_t limit) {
  if (text.size() <= limit) return {};
  return fail(ExitCode::kDataErr, fmt::format("{} is longer than {} bytes", field, limit));
}

// Reads the fields that every object owned by a job has, and the job's name from the label. Returns the name of the
// owner if it is a TrainingJob, otherwise an empty string. Fails if a text is longer than Kubernetes permits.
template <typename Object>
Result<std::string> read_identity(const Json& metadata, Object& object, std::string& job) {
  Owner owner = owner_of(metadata);
  object.name = text_at(metadata, "name");
  object.uid = text_at(metadata, "uid");
  object.owner_uid = std::move(owner.uid);
  job = text_at(member(metadata, "labels"), kLabelJobName);
  RETURN_IF_ERROR(check_length("the owner's uid", object.owner_uid, kMaxUid));
  RETURN_IF_ERROR(check_length("the job's label", job, kMaxName));
  return std::move(owner.job);
}

// A client with permission to write pod statuses can write any text, so texts are bounded here; otherwise the cache,
// statuses and events would grow with them.
constexpr size_t kMaxShortReason = 60;
constexpr size_t kMaxTerminationReason =
    100;  // longer than kMaxShortReason: the decision ignores reasons above that length
std::string reason_at(const Json& json, const char* key) { return sanitize_line(text_at(json, key), kMaxShortReason); }
std::string message_at(const Json& json, const char* key) { return sanitize_line(text_at(json, key)); }

PodPhase phase_of(const std::string& name) {
  if (name == "Running") return PodPhase::kRunning;
  if (name == "Succeeded") return PodPhase::kSucceeded;
  if (name == "Failed") return PodPhase::kFailed;
  if (name == "Unknown") return PodPhase::kUnknown;
  return PodPhase::kPending;
}

// Keeps the earliest request.
void record_stop_request(SystemTime time, Pod& pod) {
  if (!pod.stop_requested_at || time < *pod.stop_requested_at) pod.stop_requested_at = time;
}

// The limit of one day is above any real grace period, and keeps arithmetic on hostile values from overflowing.
int grace_seconds_at(const Json& json, const char* key, int otherwise) {
  const Json& grace = member(json, key);
  return grace.is_number_integer() ? static_cast<int>(std::clamp<int64_t>(grace.get<int64_t>(), 0, 86400)) : otherwise;
}

// deletionTimestamp is the end of the grace period, which began when the deletion was requested.
void read_deletion(const Json& object, Pod& pod) {
  const Json& metadata = member(object, "metadata");
  const std::string ends = text_at(metadata, "deletionTimestamp");
  pod.deleting = member(metadata, "deletionTimestamp").is_string();
  pod.grace_seconds = grace_seconds_at(member(object, "spec"), "terminationGracePeriodSeconds", pod.grace_seconds);
  SystemTime time;
  if (!from_rfc3339(ends, time)) return;
  pod.grace_seconds = grace_seconds_at(metadata, "deletionGracePeriodSeconds", 0);
  pod.grace_ends_at = time;
  record_stop_request(time - std::chrono::seconds(pod.grace_seconds), pod);
}

// The node controller sets the condition Ready of the pods on a node that does not respond to False, and leaves the
// rest of the status, so that the condition has no reason; a kubelet that sets it to False adds one.
void read_conditions(const Json& status, Pod& pod) {
  for (const Json& condition : elements(status, "conditions")) {
    const std::string type = text_at(condition, "type");
    const bool is_true = text_at(condition, "status") == "True";
    if (type == "PodScheduled") {
      pod.scheduled = is_true;
      SystemTime since;
      if (!is_true) {
        pod.unscheduled_message = message_at(condition, "message");
      } else if (from_rfc3339(text_at(condition, "lastTransitionTime"), since)) {
        pod.scheduled_at = since;
      }
    } else if (type == "Ready") {
      pod.ready = is_true;
      pod.unreachable = text_at(condition, "status") == "False" && text_at(condition, "reason").empty();
    } else if (type == "DisruptionTarget" && is_true) {
      pod.disruption = reason_at(condition, "reason");
      SystemTime since;
      if (from_rfc3339(text_at(condition, "lastTransitionTime"), since)) record_stop_request(since, pod);
    }
  }
}

// Reduces a termination message to the fields that a rank writes, with bounded texts, or to its last line if no rank
// wrote it. The kubelet permits 4 KiB, and thousands of pods may terminate at the same time.
std::string compact_termination_message(const std::string& text) {
  std::optional<TerminationMessage> message = termination_message_from_json(text);
  if (!message) return sanitize_line(last_line(text));
  message->reason.resize(std::min(message->reason.size(), kMaxTerminationReason));
  message->message = sanitize_line(message->message);
  return to_json(*message);
}

Termination read_termination(const Json& terminated) {
  Termination out;
  if (const Json& code = member(terminated, "exitCode"); code.is_number_integer()) {
    using Limits = std::numeric_limits<int>;
    out.exit_code = static_cast<int>(std::clamp<int64_t>(code.get<int64_t>(), Limits::min(), Limits::max()));
  }
  out.reason = reason_at(terminated, "reason");
  out.message = compact_termination_message(text_at(terminated, "message").substr(0, kTerminationMessageLimit));
  SystemTime finished;
  if (from_rfc3339(text_at(terminated, "finishedAt"), finished)) out.finished_at = finished;
  return out;
}

// The trainer does not start if an init container fails. In a pod that has not failed, the kubelet starts the container
// again, or it is a sidecar.
void read_init_failure(const std::string& name, const Json& terminated, Pod& pod) {
  if (pod.trainer || pod.phase != PodPhase::kFailed) return;
  Termination end = read_termination(terminated);
  if (end.exit_code == 0) return;
  end.init_container = sanitize_line(name, kMaxShortReason);
  pod.trainer = std::move(end);
}

void read_containers(const Json& status, Pod& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : elements(status, list)) {
      const Json& state = member(container, "state");
      const Json& waiting = member(state, "waiting");
      if (pod.waiting_reason.empty()) {
        pod.waiting_reason = reason_at(waiting, "reason");
        pod.waiting_message = message_at(waiting, "message");
      }
      const Json& terminated = member(state, "terminated");
      if (text_at(container, "name") == kTrainerContainer) {
        const Json& process = terminated.is_object() ? terminated : member(state, "running");
        if (SystemTime started{}; from_rfc3339(text_at(process, "startedAt"), started)) pod.started_at = started;
      }
      pod.started = pod.started || terminated.is_object() || member(state, "running").is_object();
      if (!terminated.is_object()) continue;
      if (std::string_view(list) == "initContainerStatuses") {
        read_init_failure(text_at(container, "name"), terminated, pod);
      } else if (text_at(container, "name") == kTrainerContainer) {
        pod.trainer = read_termination(terminated);
      }
    }
  }
}

// Fields that are read of every object that carries a job's label.
kube::FieldFilter owned_object_fields() {
  return {"metadata.name",
          "metadata.namespace",
          "metadata.uid",
          "metadata.deletionTimestamp",
          "metadata.ownerReferences.controller",
          "metadata.ownerReferences.uid",
          "metadata.ownerReferences.apiVersion",
          "metadata.ownerReferences.kind",
          "metadata.ownerReferences.name",
          R"(metadata.labels.oarlock\.dev/job-name)"};
}

}  // namespace

// The template and the trainer's configuration are passed to the pods verbatim: a parsed tree would change numbers that
// do not fit into a double, and takes ten times the memory.
kube::FieldFilter job_fields() {
  return kube::FieldFilter{"metadata.name",
                           "metadata.namespace",
                           "metadata.uid",
                           "metadata.generation",
                           "metadata.resourceVersion",
                           "metadata.creationTimestamp",
                           "spec",
                           "metadata.deletionTimestamp",
                           R"(metadata.labels.kueue\.x-k8s\.io/queue-name)",
                           R"(metadata.labels.kueue\.x-k8s\.io/priority-class)",
                           R"(metadata.labels.kueue\.x-k8s\.io/prebuilt-workload-name)",
                           R"(metadata.annotations.kueue\.x-k8s\.io/prebuilt-workload-name)",
                           "status"}
      .with_text({"spec.template", "spec.trainer"});
}

kube::FieldFilter job_salvage_fields() {
  return {"metadata.name",       "metadata.namespace",         "metadata.uid",
          "metadata.generation", "metadata.resourceVersion",   "metadata.creationTimestamp",
          "spec.managedBy",      "metadata.deletionTimestamp", "status.conditions"};
}

kube::FieldFilter pod_fields() {
  return owned_object_fields().with({"metadata.resourceVersion",
                                     "metadata.creationTimestamp",
                                     R"(metadata.annotations.oarlock\.dev/regroup-key-id)",
                                     R"(metadata.annotations.oarlock\.dev/default-image)",
                                     R"(metadata.annotations.oarlock\.dev/launcher-image)",
                                     R"(metadata.annotations.oarlock\.dev/avoided-nodes)",
                                     "metadata.deletionGracePeriodSeconds",
                                     R"(metadata.labels.scheduling\.x-k8s\.io/pod-group)",
                                     R"(metadata.annotations.scheduling\.k8s\.io/group-name)",
                                     "spec.schedulingGroup.podGroupName",
                                     "spec.nodeName",
                                     "spec.terminationGracePeriodSeconds",
                                     "status.phase",
                                     "status.reason",
                                     "status.message",
                                     "status.podIP",
                                     "status.nominatedNodeName",
                                     "status.conditions.type",
                                     "status.conditions.status",
                                     "status.conditions.reason",
                                     "status.conditions.message",
                                     "status.conditions.lastTransitionTime",
                                     "status.initContainerStatuses.name",
                                     "status.initContainerStatuses.state",
                                     "status.containerStatuses.name",
                                     "status.containerStatuses.state"});
}

kube::FieldFilter service_fields() {
  return owned_object_fields().with({"metadata.creationTimestamp", R"(metadata.annotations.oarlock\.dev/regroup-key)"});
}

kube::FieldFilter network_policy_fields() { return owned_object_fields().with({"spec"}); }

kube::FieldFilter pod_group_fields() { return owned_object_fields(); }

kube::FieldFilter node_fields() {
  return {"spec.unschedulable", "spec.taints.key", "status.conditions.type", "status.conditions.status"};
}

kube::FieldFilter profile_fields() {
  return kube::FieldFilter{"metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation", "spec"}
      .with_text({"spec"});
}

kube::FieldFilter workload_fields() {
  return owned_object_fields().with(
      {"metadata.resourceVersion", "spec.queueName", "spec.podSets.count", "status.conditions.type",
       "status.conditions.status", "status.conditions.reason", "status.conditions.message",
       "status.admission.clusterQueue", "status.admission.podSetAssignments.count",
       "status.admission.podSetAssignments.flavors", "status.admission.podSetAssignments.topologyAssignment.levels",
       "status.admissionChecks.podSetUpdates"});
}

Job project_job(const Json& object) {
  Job job = api::read_training_job(object);
  // Without its feature gate WorkloadIdentifierAnnotations, Kueue sets a label of the same key. As in Kueue, the
  // annotation has precedence.
  std::string& prebuilt = job.metadata.prebuilt_workload;
  if (prebuilt.empty())
    prebuilt = text_at(member(member(object, "metadata"), "labels"), api::kAnnotationPrebuiltWorkload);
  // An annotation may be long, but the name of a Workload is not.
  if (prebuilt.size() > kMaxName) prebuilt.clear();
  return job;
}

Job unreadable_job(const Json& salvaged, const Error& error) {
  Job job = api::read_training_job(salvaged);
  job.report.problem = error.message;
  return job;
}

// Returns "" for a longer value, which the operator has not written.
std::string image_at(const Json& annotations, const char* name) {
  std::string image = text_at(annotations, name);
  return image.size() > api::rules::kMaxImage ? "" : image;
}

Result<CachedPod> project_pod(const Json& object) {
  const Json& metadata = member(object, "metadata");
  const Json& status = member(object, "status");
  CachedPod out;
  Pod& pod = out.object;
  ASSIGN_OR_RETURN(const std::string owner, read_identity(metadata, pod, out.job));
  pod.owner_is_job = !owner.empty() && pod.name.starts_with(owner + "-");
  pod.resource_version = text_at(metadata, "resourceVersion");
  const Json& annotations = member(metadata, "annotations");
  pod.regroup_key = regroup_key_id(text_at(annotations, kAnnotationRegroupKeyId));
  pod.images = {image_at(annotations, kAnnotationTrainerImage), image_at(annotations, kAnnotationLauncherImage)};
  pod.gang = read_gang(object);
  if (pod.gang && pod.gang->pod_group.size() > kMaxName) pod.gang.reset();  // not of the operator
  if (SystemTime created{}; from_rfc3339(text_at(metadata, "creationTimestamp"), created)) pod.created = created;
  pod.phase = phase_of(text_at(status, "phase"));
  pod.reason = reason_at(status, "reason");
  pod.message = message_at(status, "message");
  read_deletion(object, pod);
  pod.pod_ip = text_at(status, "podIP");
  pod.nominated = !text_at(status, "nominatedNodeName").empty();
  pod.node_name = text_at(member(object, "spec"), "nodeName");
  RETURN_IF_ERROR(check_length("status.podIP", pod.pod_ip, kMaxName));
  RETURN_IF_ERROR(check_length("spec.nodeName", pod.node_name, kMaxName));
  if (pod.node_name.empty()) pod.avoided = parse_avoided_nodes(text_at(annotations, kAnnotationAvoidedNodes));
  read_conditions(status, pod);
  read_containers(status, pod);
  return out;
}

Result<CachedService> project_service(const Json& object) {
  const Json& metadata = member(object, "metadata");
  CachedService out;
  Service& service = out.object;
  ASSIGN_OR_RETURN(const std::string owner, read_identity(metadata, service, out.job));
  service.owner_is_job = !owner.empty() && service.name == owner;
  service.deleting = member(metadata, "deletionTimestamp").is_string();
  from_rfc3339(text_at(metadata, "creationTimestamp"), service.created);
  service.regroup_key = regroup_key_id(text_at(member(metadata, "annotations"), kAnnotationRegroupKey));
  return out;
}

Result<CachedNetworkPolicy> project_network_policy(const Json& object) {
  const Json& metadata = member(object, "metadata");
  CachedNetworkPolicy out;
  NetworkPolicy& policy = out.object;
  ASSIGN_OR_RETURN(const std::string owner, read_identity(metadata, policy, out.job));
  policy.owner_is_job = !owner.empty() && policy.name == network_policy_name(owner);
  policy.deleting = member(metadata, "deletionTimestamp").is_string();
  policy.digest = spec_digest(member(object, "spec"));
  return out;
}

Result<CachedPodGroup> project_pod_group(GangApi api, const Json& object) {
  const Json& metadata = member(object, "metadata");
  CachedPodGroup out;
  out.object.api = api;
  RETURN_IF_ERROR(read_identity(metadata, out.object, out.job));
  out.object.deleting = member(metadata, "deletionTimestamp").is_string();
  return out;
}

CachedNode project_node(const Json& object) {
  const Json& spec = member(object, "spec");
  for (const Json& taint : elements(spec, "taints")) {
    const std::string key = text_at(taint, "key");
    if (announces_disruption(key)) return {"taint " + key};
  }
  for (const Json& condition : elements(member(object, "status"), "conditions")) {
    const std::string type = text_at(condition, "type");
    if (text_at(condition, "status") == "True" && is_disruption_condition(type)) return {"condition " + type};
  }
  return {true_at(spec, "unschedulable") ? "cordoned" : ""};
}

// Of a spec that is larger than a profile's, only as much is kept as reports it (api::find_profile_problem).
Result<CachedProfile> project_profile(const Json& object) {
  const Json& metadata = member(object, "metadata");
  const Json& spec = member(object, "spec");
  CachedProfile out;
  api::AppliedProfile& profile = out.profile;
  profile.name = text_at(metadata, "name");
  profile.namespace_name = text_at(metadata, "namespace");
  profile.uid = text_at(metadata, "uid");
  profile.generation = integer_at<int64_t>(metadata, "generation", 0);
  if (!spec.is_binary()) return out;
  const auto& text = spec.get_binary();
  profile.spec.assign(text.begin(), text.end());
  if (profile.spec.size() > api::kMaxProfileBytes) profile.spec.resize(api::kMaxProfileBytes + 1);
  profile.spec.shrink_to_fit();
  return out;
}

namespace {

// A Workload of a job has one podSet. Every text is bounded, because other clients can write it.
constexpr size_t kMaxFlavors = 64;
constexpr size_t kMaxPodUpdates = 64u << 10;

int nodes_at(const Json& pod_set) {
  const auto count = integer_at<int64_t>(pod_set, "count", 0);
  return static_cast<int>(std::clamp<int64_t>(count, 0, api::rules::kMaxNodes));
}

Result<Admission> read_admission(const Json& status) {
  const Json& assignments = elements(member(status, "admission"), "podSetAssignments");
  Admission out;
  out.cluster_queue = text_at(member(status, "admission"), "clusterQueue");
  RETURN_IF_ERROR(check_length("status.admission.clusterQueue", out.cluster_queue, kMaxName));
  if (!assignments.empty()) {
    const Json& first = assignments.front();
    out.nodes = nodes_at(first);
    out.has_topology = !elements(member(first, "topologyAssignment"), "levels").empty();
    const Json& flavors = member(first, "flavors");
    for (const Json& flavor : flavors.is_object() ? flavors : Json::object()) {
      if (!flavor.is_string() || out.flavors.size() >= kMaxFlavors) continue;
      out.flavors.push_back(flavor.get<std::string>());
      RETURN_IF_ERROR(check_length("a flavor", out.flavors.back(), kMaxName));
    }
    std::ranges::sort(out.flavors);
    const auto repeated = std::ranges::unique(out.flavors);
    out.flavors.erase(repeated.begin(), repeated.end());
  }
  Json updates = Json::array();
  for (const Json& check : elements(status, "admissionChecks")) {
    for (const Json& update : elements(check, "podSetUpdates")) updates.push_back(update);
  }
  if (!updates.empty()) out.pod_updates = dump_json(updates);
  RETURN_IF_ERROR(check_length("status.admissionChecks", out.pod_updates, kMaxPodUpdates));
  return out;
}

}  // namespace

Result<CachedWorkload> project_workload(const Json& object) {
  const Json& metadata = member(object, "metadata");
  const Json& spec = member(object, "spec");
  const Json& status = member(object, "status");
  const Json none;
  const auto condition = [&](const char* type) -> const Json& {
    const Json* found = find_item(elements(status, "conditions"), "type", type);
    return found == nullptr ? none : *found;
  };
  const auto is_true = [&](const char* type) { return text_at(condition(type), "status") == "True"; };
  CachedWorkload out;
  Workload& workload = out.object;
  ASSIGN_OR_RETURN(const std::string owner, read_identity(metadata, workload, out.job));
  workload.resource_version = text_at(metadata, "resourceVersion");
  workload.deleting = member(metadata, "deletionTimestamp").is_string();
  workload.queue = text_at(spec, "queueName");
  RETURN_IF_ERROR(check_length("spec.queueName", workload.queue, kMaxName));
  if (const Json& sets = elements(spec, "podSets"); !sets.empty()) workload.nodes = nodes_at(sets.front());
  workload.has_quota = is_true("QuotaReserved");
  workload.admitted = is_true("Admitted");
  workload.evicted = is_true("Evicted");
  workload.finished = is_true("Finished");
  workload.pods_ready = is_true("PodsReady");
  workload.requeued = is_true("Requeued");
  workload.has_checks = !elements(status, "admissionChecks").empty();
  const bool is_inactive = workload.evicted && text_at(condition("Evicted"), "reason").starts_with("Deactivated");
  const char* explains = is_inactive || (workload.evicted && workload.has_quota) ? "Evicted"
                         : workload.has_quota                                    ? "Admitted"
                                                                                 : "QuotaReserved";
  const Json& why = condition(explains);
  workload.reason = reason_at(why, "reason");
  workload.message = message_at(why, "message");
  if (workload.has_quota) {
    ASSIGN_OR_RETURN(workload.admission, read_admission(status));
    if (workload.admission.nodes == 0) workload.admission.nodes = workload.nodes;  // the count is optional
  }
  return out;
}

ObjectMetadata read_object_metadata(const std::string& response) {
  static const kube::FieldFilter kFields{"metadata.uid", "metadata.resourceVersion", "metadata.deletionTimestamp",
                                         "metadata.ownerReferences.controller", "metadata.ownerReferences.uid"};
  const Result<Json> object = kFields.parse(response);
  if (!object) return {};
  const Json& metadata = member(*object, "metadata");
  return {text_at(metadata, "uid"), text_at(metadata, "resourceVersion"), owner_of(metadata).uid,
          member(metadata, "deletionTimestamp").is_string()};
}

}  // namespace oarlock::control
