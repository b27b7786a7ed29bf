#include "operator/shell/projection.h"

#include <algorithm>
#include <limits>

#include "common/contract.h"
#include "operator/api/codec.h"
#include "operator/core/network_policy.h"
#include "operator/core/text.h"
#include "operator/kube/json_access.h"

namespace oarlock::control {
namespace {

using kube::elements;
using kube::member;
using kube::text_at;
using Json = nlohmann::json;

struct Owner {
  std::string uid;
  std::string job;  // its name where it is a TrainingJob, else empty
};

Owner owner_of(const Json& metadata) {
  for (const Json& owner : elements(metadata, "ownerReferences")) {
    if (!kube::true_at(owner, "controller")) continue;
    const bool is_job =
        text_at(owner, "kind") == kKind && text_at(owner, "apiVersion").starts_with(std::string(kGroup) + "/");
    return {text_at(owner, "uid"), is_job ? text_at(owner, "name") : ""};
  }
  return {};
}

std::string label(const Json& metadata, const char* name) { return text_at(member(metadata, "labels"), name); }

// Whoever may write a pod's status may write anything into it: here its texts are bounded, so that neither the cache
// nor what is made of it grows with them.
constexpr size_t kMaxReason = 60;
constexpr size_t kMaxTerminationReason = 100;  // one that is longer than 60 characters is not taken for a reason
std::string reason_at(const Json& json, const char* key) { return one_line(text_at(json, key), kMaxReason); }
std::string message_at(const Json& json, const char* key) { return one_line(text_at(json, key)); }

PodPhase phase_of(const std::string& name) {
  if (name == "Running") return PodPhase::kRunning;
  if (name == "Succeeded") return PodPhase::kSucceeded;
  if (name == "Failed") return PodPhase::kFailed;
  if (name == "Unknown") return PodPhase::kUnknown;
  return PodPhase::kPending;
}

// Keeps the earliest.
void note_stop_request(SystemTime time, Pod& pod) {
  if (!pod.stop_requested_at || time < *pod.stop_requested_at) pod.stop_requested_at = time;
}

// deletionTimestamp is when the grace period ends, which began with the request.
void read_deletion(const Json& metadata, Pod& pod) {
  const std::string ends = text_at(metadata, "deletionTimestamp");
  pod.deleting = member(metadata, "deletionTimestamp").is_string();
  SystemTime time;
  if (!from_rfc3339(ends, time)) return;
  const Json& grace = member(metadata, "deletionGracePeriodSeconds");
  const int64_t seconds = grace.is_number_integer() ? grace.get<int64_t>() : 0;
  // Longer than a day is nobody's grace period, and arithmetic on hostile values must not overflow.
  note_stop_request(time - std::chrono::seconds(std::clamp<int64_t>(seconds, 0, 86400)), pod);
}

void read_conditions(const Json& status, Pod& pod) {
  for (const Json& condition : elements(status, "conditions")) {
    const std::string type = text_at(condition, "type");
    const bool is_true = text_at(condition, "status") == "True";
    if (type == "PodScheduled") {
      pod.scheduled = is_true;
      if (!is_true) pod.unscheduled_message = message_at(condition, "message");
    } else if (type == "Ready") {
      pod.ready = is_true;
    } else if (type == "DisruptionTarget" && is_true) {
      pod.disruption = reason_at(condition, "reason");
      SystemTime since;
      if (from_rfc3339(text_at(condition, "lastTransitionTime"), since)) note_stop_request(since, pod);
    }
  }
}

// What the decision reads of a termination message: the fields that a rank has written, with a bounded text, or else
// the last line. The kubelet permits 4 KiB, and thousands of pods may end at the same time.
std::string compact_message(const std::string& text) {
  std::optional<TerminationMessage> written = termination_message_from_json(text);
  if (!written) return one_line(last_line(text));
  written->reason.resize(std::min(written->reason.size(), kMaxTerminationReason));
  written->message = one_line(written->message);
  return to_json(*written);
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
      if (std::string_view(list) == "containerStatuses" && text_at(container, "name") == kTrainerContainer &&
          terminated.is_object()) {
        Termination end;
        if (const Json& code = member(terminated, "exitCode"); code.is_number_integer()) {
          using Limits = std::numeric_limits<int>;
          end.exit_code = static_cast<int>(std::clamp<int64_t>(code.get<int64_t>(), Limits::min(), Limits::max()));
        }
        end.reason = reason_at(terminated, "reason");
        end.message = compact_message(text_at(terminated, "message").substr(0, kTerminationMessageLimit));
        SystemTime finished;
        if (from_rfc3339(text_at(terminated, "finishedAt"), finished)) end.finished_at = finished;
        pod.trainer = std::move(end);
      }
    }
  }
}

// What is kept of each object that carries a job's label.
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

// The template and the trainer's configuration are handed on to the pods as the API server serves them: a tree would
// change numbers that no double can hold, and costs ten times the memory.
kube::FieldFilter job_fields() {
  return kube::FieldFilter{"metadata.name",
                           "metadata.namespace",
                           "metadata.uid",
                           "metadata.generation",
                           "metadata.resourceVersion",
                           "metadata.creationTimestamp",
                           "spec",
                           "metadata.deletionTimestamp",
                           "status"}
      .with_text({"spec.template", "spec.trainer"});
}

kube::FieldFilter job_salvage_fields() {
  return {"metadata.name",       "metadata.namespace",         "metadata.uid",
          "metadata.generation", "metadata.resourceVersion",   "metadata.creationTimestamp",
          "spec.managedBy",      "metadata.deletionTimestamp", "status.conditions"};
}

kube::FieldFilter pod_fields() {
  return owned_object_fields().with({"metadata.resourceVersion", "metadata.deletionGracePeriodSeconds", "spec.nodeName",
                                     "status.phase", "status.reason", "status.message", "status.podIP",
                                     "status.conditions.type", "status.conditions.status", "status.conditions.reason",
                                     "status.conditions.message", "status.conditions.lastTransitionTime",
                                     "status.initContainerStatuses.state.waiting", "status.containerStatuses.name",
                                     "status.containerStatuses.state"});
}

kube::FieldFilter service_fields() { return owned_object_fields().with({"metadata.creationTimestamp"}); }

kube::FieldFilter network_policy_fields() { return owned_object_fields().with({"spec"}); }

Job project_job(const Json& object) { return api::read_training_job(object); }

Job unreadable_job(const Json& salvaged, const Error& error) {
  Job job = api::read_training_job(salvaged);
  job.report.problem = error.message;
  return job;
}

Result<CachedPod> project_pod(const Json& object) {
  const Json& metadata = member(object, "metadata");
  const Json& status = member(object, "status");
  CachedPod out;
  out.job = label(metadata, kLabelJobName);
  Pod& pod = out.pod;
  pod.name = text_at(metadata, "name");
  pod.uid = text_at(metadata, "uid");
  pod.resource_version = text_at(metadata, "resourceVersion");
  const Owner owner = owner_of(metadata);
  pod.owner_uid = owner.uid;
  pod.owner_is_job = !owner.job.empty() && pod.name.starts_with(owner.job + "-");
  pod.phase = phase_of(text_at(status, "phase"));
  pod.reason = reason_at(status, "reason");
  pod.message = message_at(status, "message");
  read_deletion(metadata, pod);
  pod.pod_ip = text_at(status, "podIP");
  pod.node_name = text_at(member(object, "spec"), "nodeName");
  read_conditions(status, pod);
  read_containers(status, pod);
  return out;
}

Result<CachedService> project_service(const Json& object) {
  const Json& metadata = member(object, "metadata");
  CachedService out;
  out.job = label(metadata, kLabelJobName);
  out.service.name = text_at(metadata, "name");
  out.service.uid = text_at(metadata, "uid");
  const Owner owner = owner_of(metadata);
  out.service.owner_uid = owner.uid;
  out.service.owner_is_job = !owner.job.empty() && out.service.name == owner.job;
  out.service.deleting = member(metadata, "deletionTimestamp").is_string();
  from_rfc3339(text_at(metadata, "creationTimestamp"), out.service.created);
  return out;
}

Result<CachedNetworkPolicy> project_network_policy(const Json& object) {
  const Json& metadata = member(object, "metadata");
  CachedNetworkPolicy out;
  out.job = label(metadata, kLabelJobName);
  NetworkPolicy& policy = out.network_policy;
  policy.name = text_at(metadata, "name");
  policy.uid = text_at(metadata, "uid");
  const Owner owner = owner_of(metadata);
  policy.owner_uid = owner.uid;
  policy.owner_is_job = !owner.job.empty() && policy.name == network_policy_name(owner.job);
  policy.deleting = member(metadata, "deletionTimestamp").is_string();
  policy.digest = spec_digest(member(object, "spec"));
  return out;
}

Written read_written(const std::string& answer) {
  static const kube::FieldFilter kFields{"metadata.uid", "metadata.resourceVersion",
                                         "metadata.ownerReferences.controller", "metadata.ownerReferences.uid"};
  const Result<Json> object = kFields.parse(answer);
  if (!object) return {};
  const Json& metadata = member(*object, "metadata");
  return {text_at(metadata, "uid"), text_at(metadata, "resourceVersion"), owner_of(metadata).uid};
}

}  // namespace oarlock::control
