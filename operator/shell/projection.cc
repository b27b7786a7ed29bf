#include "operator/shell/projection.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "api/codec.h"
#include "api/rules.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "fields/fields.h"
#include "operator/core/desired.h"
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

// No real pod requests more, and sums and products of such counts cannot overflow.
constexpr int64_t kMaxCount = 1'000'000;

// Each resource of each job becomes a time series whose label a tenant chooses.
constexpr size_t kMaxResources = 8;
constexpr size_t kMaxResourceName = 128;
constexpr size_t kMaxTemplate = 256u << 10;  // bytes

// Value of a quantity that is a whole number, either a JSON number or a string; 0 for anything else.
int64_t whole_number(const Json& quantity) {
  if (quantity.is_number_unsigned())
    return static_cast<int64_t>(std::min<uint64_t>(quantity.get<uint64_t>(), kMaxCount));
  if (quantity.is_number_integer()) return quantity.get<int64_t>();
  const std::string text = quantity.is_string() ? quantity.get<std::string>() : "";
  int64_t out = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ptr == text.data() + text.size() ? out : 0;
}

// The name of an extended resource consists of a domain, a slash and a name.
bool is_resource_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == '/';
  };
  return name.size() <= kMaxResourceName && name.find('/') != std::string_view::npos &&
         std::ranges::all_of(name, is_allowed);
}

// Memory that a string takes outside of its object, in bytes.
size_t heap_bytes(const std::string& text) {
  return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

size_t heap_bytes(std::initializer_list<const std::string*> members) {
  size_t bytes = 0;
  for (const std::string* member : members) bytes += heap_bytes(*member);
  return bytes;
}

// Sums the memory of the values that a description names, approximately.
class MemoryMeter final : public Fields {
 public:
  size_t bytes() const { return bytes_; }

  void section(std::string_view, const Describe& describe, std::string_view) override { describe(*this); }
  void number_or_name(std::string_view, int&, NumberForm&, std::string_view, const Limits&, std::string_view) override {
  }
  void raw_object(std::string_view, std::string& text, std::string_view) override { add(text); }
  void unknown_members(std::string& text) override { add(text); }
  void visit(std::string_view, FieldValue value, const Limits&, std::string_view) override {
    std::visit([this](const auto* field) { add(*field); }, value);
  }
  bool visit_choice(std::string_view, size_t&, const std::vector<std::string_view>&, std::string_view) override {
    return false;
  }
  void visit_optional(std::string_view, bool is_present, const Describe& describe, std::string_view) override {
    if (is_present) describe(*this);
  }
  void visit_list(std::string_view, size_t size, const std::function<void(size_t)>&,
                  const std::function<void(size_t, Fields&)>& describe, const Limits&, std::string_view) override {
    constexpr size_t kItemBytes = 256;
    bytes_ += size * kItemBytes;
    for (size_t i = 0; i < size; ++i) describe(i, *this);
  }

 private:
  void add(const std::string& text) { bytes_ += heap_bytes(text); }
  template <typename T>
  void add(const std::optional<T>& value) {
    if (value) add(*value);
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    bytes_ += values.capacity() * sizeof(T);
    for (const T& value : values) add(value);
  }
  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_same_v<T, SystemTime>)
  void add(const T&) {}

  size_t bytes_ = 0;
};

// Other controllers may add conditions of up to 32 KiB. The operator's own part has at most about 75 KB, of which 50 KB
// are kMaxReplacements records.
constexpr size_t kMaxStatusBytes = 128u << 10;

// A status that is too large is not kept, because a shortened one would be written back.
void bound_status(Job& job) {
  MemoryMeter meter;
  describe(job.status, meter);
  if (meter.bytes() + job.status.unknown_phase.size() <= kMaxStatusBytes) return;
  api::Status bounded;
  bounded.phase = job.status.phase;
  std::swap(job.status, bounded);  // an assignment would keep the allocated memory
  job.report.has_conditions = false;
  job.report.problem = fmt::format("status: larger than {} KiB", kMaxStatusBytes >> 10);
}

void bound_report(api::ReadReport& report) {
  constexpr size_t kMaxUnknown = 50;
  report.problem = sanitize_line(report.problem);
  if (report.unknown.size() > kMaxUnknown) report.unknown.resize(kMaxUnknown);
  for (std::string& field : report.unknown) field = sanitize_line(field, 200);
  report.unknown.shrink_to_fit();
}

size_t cached_bytes(CachedJob& cached) {
  MemoryMeter meter;
  describe(cached.job.metadata, meter);
  describe(cached.job.spec, meter);
  describe(cached.job.status, meter);
  size_t bytes =
      sizeof cached + meter.bytes() + cached.job.status.unknown_phase.capacity() + cached.job.report.problem.capacity();
  for (const std::string& field : cached.job.report.unknown) bytes += sizeof field + field.capacity();
  for (const auto& [name, count] : cached.accelerators) bytes += sizeof name + name.capacity() + 64;
  return bytes;
}

// Swaps, because an assignment would keep the allocated memory.
void drop_spec(api::Spec& spec) {
  std::string().swap(spec.pod_template);
  std::string().swap(spec.trainer);
  spec.resources_per_node.reset();
  std::vector<api::FailureRule>().swap(spec.failure_policy.rules);
}

// Whether validate() rejects the job because of its size.
bool is_oversized(const api::Spec& spec) {
  return spec.pod_template.size() > static_cast<size_t>(api::rules::kMaxTemplateBytes) ||
         spec.trainer.size() > static_cast<size_t>(api::rules::kMaxAnnotationBytes);
}

void trim_spec(Job& job) {
  job.report.is_trimmed = true;
  job.report.trimmed_kib = static_cast<uint32_t>((spec_bytes(job.spec) + 1023) / 1024);
  drop_spec(job.spec);
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
                                     "metadata.deletionGracePeriodSeconds",
                                     "spec.nodeName",
                                     "spec.terminationGracePeriodSeconds",
                                     "status.phase",
                                     "status.reason",
                                     "status.message",
                                     "status.podIP",
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

Job project_job(const Json& object) { return api::read_training_job(object); }

Job unreadable_job(const Json& salvaged, const Error& error) {
  Job job = api::read_training_job(salvaged);
  job.report.problem = error.message;
  return job;
}

size_t spec_bytes(const api::Spec& spec) {
  size_t bytes = spec.pod_template.capacity() + spec.trainer.capacity();
  if (spec.resources_per_node)
    bytes += spec.resources_per_node->requests.capacity() + spec.resources_per_node->limits.capacity();
  for (const api::FailureRule& rule : spec.failure_policy.rules) {
    bytes += sizeof rule;
    if (rule.on_exit_codes) bytes += rule.on_exit_codes->values.capacity() * sizeof(int64_t);
    for (const std::string& reason : rule.on_pod_reasons) bytes += sizeof reason + reason.capacity();
    bytes += rule.on_pod_conditions.capacity() * sizeof(api::PodConditionMatch);
  }
  return bytes;
}

CachedJob make_cached_job(Job job, ByteBudget& budget) {
  CachedJob out{.job = std::move(job), .accelerators = {}, .reservation = {}, .bytes = 0};
  bound_status(out.job);
  bound_report(out.job.report);
  api::Spec& spec = out.job.spec;
  const bool is_finished = is_terminal(out.job.status.phase);
  if (!is_finished) out.accelerators = requested_accelerators(spec);
  if (is_finished || !out.job.report.problem.empty() || spec.is_managed_elsewhere()) {
    drop_spec(spec);
  } else {
    // A job that is too large to run takes nothing from the budget of the others.
    if (!is_oversized(spec)) out.reservation = budget.try_acquire(spec_bytes(spec));
    if (!out.reservation) trim_spec(out.job);
  }
  out.bytes = cached_bytes(out);
  return out;
}

std::map<std::string, int64_t> requested_accelerators(const api::Spec& spec) {
  static const kube::FieldFilter kFields{"spec.containers.name", "spec.containers.resources.limits"};
  std::map<std::string, int64_t> out;
  const auto add = [&](const Json& limits) {
    if (!limits.is_object()) return;
    for (const auto& [name, quantity] : limits.items()) {
      if (!is_resource_name(name)) continue;  // native resources have no domain
      if (out.size() >= kMaxResources && !out.contains(name)) continue;
      if (const int64_t count = whole_number(quantity); count > 0)
        out[name] = std::min(out[name] + std::min(count, kMaxCount), kMaxCount);
    }
  };
  Json trainer = Json::object();
  if (spec.resources_per_node && spec.resources_per_node->limits.size() <= kMaxTemplate)
    trainer = Json::parse(spec.resources_per_node->limits, nullptr, false);
  if (!trainer.is_object()) trainer = Json::object();
  if (const std::string& text = spec.pod_template;
      text.size() <= kMaxTemplate && text.find("\"limits\"") != std::string::npos) {
    const Json pod = kFields.parse(text).value_or(Json());
    for (const Json& container : elements(member(pod, "spec"), "containers")) {
      const Json& limits = member(member(container, "resources"), "limits");
      if (text_at(container, "name") == kTrainerContainer && limits.is_object()) {
        trainer.merge_patch(limits);
      } else {
        add(limits);
      }
    }
  }
  add(trainer);
  return out;
}

size_t memory_of(const CachedPod& cached) {
  const Pod& pod = cached.pod;
  size_t bytes = sizeof cached + heap_bytes({&cached.job, &pod.name, &pod.uid, &pod.resource_version, &pod.owner_uid,
                                             &pod.reason, &pod.message, &pod.unscheduled_message, &pod.disruption,
                                             &pod.pod_ip, &pod.node_name, &pod.waiting_reason, &pod.waiting_message,
                                             &pod.regroup_key, &pod.images.trainer, &pod.images.launcher});
  if (pod.trainer) bytes += heap_bytes({&pod.trainer->reason, &pod.trainer->message, &pod.trainer->init_container});
  return bytes;
}

size_t memory_of(const CachedService& cached) {
  const Service& service = cached.service;
  return sizeof cached +
         heap_bytes({&cached.job, &service.name, &service.uid, &service.owner_uid, &service.regroup_key});
}

size_t memory_of(const CachedNetworkPolicy& cached) {
  const NetworkPolicy& policy = cached.network_policy;
  return sizeof cached + heap_bytes({&cached.job, &policy.name, &policy.uid, &policy.owner_uid, &policy.digest});
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
  Pod& pod = out.pod;
  ASSIGN_OR_RETURN(const std::string owner, read_identity(metadata, pod, out.job));
  pod.owner_is_job = !owner.empty() && pod.name.starts_with(owner + "-");
  pod.resource_version = text_at(metadata, "resourceVersion");
  const Json& annotations = member(metadata, "annotations");
  pod.regroup_key = regroup_key_id(text_at(annotations, kAnnotationRegroupKeyId));
  pod.images = {image_at(annotations, kAnnotationTrainerImage), image_at(annotations, kAnnotationLauncherImage)};
  if (SystemTime created{}; from_rfc3339(text_at(metadata, "creationTimestamp"), created)) pod.created = created;
  pod.phase = phase_of(text_at(status, "phase"));
  pod.reason = reason_at(status, "reason");
  pod.message = message_at(status, "message");
  read_deletion(object, pod);
  pod.pod_ip = text_at(status, "podIP");
  pod.node_name = text_at(member(object, "spec"), "nodeName");
  RETURN_IF_ERROR(check_length("status.podIP", pod.pod_ip, kMaxName));
  RETURN_IF_ERROR(check_length("spec.nodeName", pod.node_name, kMaxName));
  read_conditions(status, pod);
  read_containers(status, pod);
  return out;
}

Result<CachedService> project_service(const Json& object) {
  const Json& metadata = member(object, "metadata");
  CachedService out;
  Service& service = out.service;
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
  NetworkPolicy& policy = out.network_policy;
  ASSIGN_OR_RETURN(const std::string owner, read_identity(metadata, policy, out.job));
  policy.owner_is_job = !owner.empty() && policy.name == network_policy_name(owner);
  policy.deleting = member(metadata, "deletionTimestamp").is_string();
  policy.digest = spec_digest(member(object, "spec"));
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
