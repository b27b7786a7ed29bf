#include "operator/shell/cached_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "api/codec.h"
#include "api/resources.h"
#include "api/rules.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "fields/fields.h"
#include "kube/client/field_filter.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

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
  report.profile_problem = sanitize_line(report.profile_problem);
  if (report.unknown.size() > kMaxUnknown) report.unknown.resize(kMaxUnknown);
  for (std::string& field : report.unknown) field = sanitize_line(field, 200);
  report.unknown.shrink_to_fit();
}

size_t cached_bytes(CachedJob& cached) {
  MemoryMeter meter;
  describe(cached.job.metadata, meter);
  describe(cached.job.spec, meter);
  describe(cached.job.status, meter);
  const api::ReadReport& report = cached.job.report;
  size_t bytes = sizeof cached + meter.bytes() + cached.job.status.unknown_phase.capacity() +
                 report.problem.capacity() + report.profile_problem.capacity();
  for (const std::string& field : report.unknown) bytes += sizeof field + field.capacity();
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
  const bool is_run_elsewhere = spec.is_managed_elsewhere() && !spec.is_managed_by_multikueue();
  if (is_finished || !out.job.report.problem.empty() || is_run_elsewhere) {
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

int64_t count_accelerators(const std::map<std::string, int64_t>& resources) {
  if (const int64_t gpus = api::count_gpus(Json(resources)); gpus > 0) return gpus;
  int64_t out = 0;
  for (const auto& [name, count] : resources) out = std::max(out, count);
  return out;
}

size_t memory_of(const CachedNode& cached) { return sizeof cached + heap_bytes(cached.warning); }

size_t memory_of(const CachedPod& cached) {
  const Pod& pod = cached.object;
  size_t bytes = sizeof cached + heap_bytes({&cached.job, &pod.name, &pod.uid, &pod.resource_version, &pod.owner_uid,
                                             &pod.reason, &pod.message, &pod.unscheduled_message, &pod.disruption,
                                             &pod.pod_ip, &pod.node_name, &pod.waiting_reason, &pod.waiting_message,
                                             &pod.regroup_key, &pod.images.trainer, &pod.images.launcher});
  if (pod.gang) bytes += heap_bytes({&pod.gang->pod_group});
  if (pod.trainer) bytes += heap_bytes({&pod.trainer->reason, &pod.trainer->message, &pod.trainer->init_container});
  return bytes;
}

size_t memory_of(const CachedService& cached) {
  const Service& service = cached.object;
  return sizeof cached +
         heap_bytes({&cached.job, &service.name, &service.uid, &service.owner_uid, &service.regroup_key});
}

size_t memory_of(const CachedNetworkPolicy& cached) {
  const NetworkPolicy& policy = cached.object;
  return sizeof cached + heap_bytes({&cached.job, &policy.name, &policy.uid, &policy.owner_uid, &policy.digest});
}

size_t memory_of(const CachedWorkload& cached) {
  const Workload& workload = cached.object;
  size_t bytes = sizeof cached + heap_bytes({&cached.job, &workload.name, &workload.uid, &workload.owner_uid,
                                             &workload.queue, &workload.reason, &workload.message,
                                             &workload.admission.cluster_queue, &workload.admission.pod_updates});
  for (const std::string& flavor : workload.admission.flavors) bytes += sizeof flavor + flavor.capacity();
  return bytes;
}

size_t memory_of(const CachedPodGroup& cached) {
  const PodGroup& group = cached.object;
  return sizeof cached + heap_bytes({&cached.job, &group.name, &group.uid, &group.owner_uid});
}

size_t memory_of(const CachedProfile& cached) {
  const api::AppliedProfile& profile = cached.profile;
  return sizeof cached + heap_bytes({&profile.name, &profile.namespace_name, &profile.uid, &profile.spec});
}

}  // namespace oarlock::control
