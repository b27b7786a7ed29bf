#include "api/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "api/resources.h"
#include "api/rules.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

// The problems that were found. The author of a job determines their number, and the length of the keys in their paths.
class Found {
 public:
  std::vector<FieldProblem>& all() { return all_; }
  bool is_full() const { return all_.size() >= kMaxProblems; }
  void add(FieldProblem problem) {
    if (!is_full()) all_.push_back({shortened(problem.path, kMaxPath), std::move(problem.message)});
  }

 private:
  static constexpr size_t kMaxPath = 1024;

  std::vector<FieldProblem> all_;
};

bool is_name(const std::string& name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (name.empty() || !letter(name.front()) || name.back() == '-') return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c) || c == '-'; });
}

bool is_metrics_port(int64_t port, const Spec& spec) {
  return port >= kDefaultMetricsPort && port < int64_t{kDefaultMetricsPort} + spec.processes_per_node;
}

// Returns the ports after rendezvous.port that the launchers of several nodes use.
std::vector<int64_t> ports_after(const Spec& spec) {
  const int64_t port = spec.rendezvous.port;
  std::vector<int64_t> out;
  if (spec.nodes < 2) return out;
  if (spec.failure_policy.restarts_ranks()) out.push_back(port + kRegroupPortOffset);
  if (spec.preflight) out.push_back(port + kPreflightPortOffset);
  return out;
}

// The profile that a job names may have another port than the default. `spec` is merged with it when the job starts.
bool may_have_another_port(const TrainingJob& job) {
  return !job.status.profile && job.spec.profile && !job.spec.profile->empty() &&
         job.spec.rendezvous.port == kDefaultMasterPort;
}

bool is_rendezvous_port(int64_t port, const Spec& spec) {
  const std::vector<int64_t> after = ports_after(spec);
  return port == spec.rendezvous.port || std::ranges::find(after, port) != after.end();
}

// Returns the member if it exists and has the type `kind`, and otherwise null. Reports a member of another type.
const Json* member(const Json& object, const char* key, Json::value_t kind, const std::string& path, Found& found) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return nullptr;
  if (it->type() == kind) return &*it;
  found.add({path + "." + key,
             fmt::format("expected {}, got {}", kind == Json::value_t::array ? "a list" : "a map", it->type_name())});
  return nullptr;
}

std::string string_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// Calls fn(item, path) for each object in the list object[key].
template <typename Fn>
void each(const Json& object, const char* key, const std::string& path, size_t most, Found& found, Fn fn) {
  const Json* list = member(object, key, Json::value_t::array, path, found);
  if (list == nullptr) return;
  if (list->size() > most)
    found.add({path + "." + key, fmt::format("has {} items; the maximum is {}", list->size(), most)});
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string item_path = fmt::format("{}.{}[{}]", path, key, i);
    if (!(*list)[i].is_object()) {
      found.add({item_path, fmt::format("expected a map, got {}", (*list)[i].type_name())});
    } else {
      fn((*list)[i], item_path);
    }
  }
}

// Rounds up, so that a size above a limit differs from the limit.
std::string rounded_up_size(int64_t bytes) {
  if (bytes < 10 << 20) return fmt::format("{} KiB", (bytes + (1 << 10) - 1) >> 10);
  return fmt::format("{} MiB", (bytes + (1 << 20) - 1) >> 20);
}

// Checks the sizes of the job's pods. `annotations` is the size of the template's annotations, keys and values
// together.
// `annotations` is the size of those of the template, and `containers` the number of its containers.
void check_sizes(const Spec& spec, int64_t annotations, int64_t containers, Found& found) {
  const auto trainer = static_cast<int64_t>(spec.trainer.size());
  const int64_t environments = std::max<int64_t>(containers - 1, 0) * rules::kEnvironmentBytes;
  const auto pod = trainer + static_cast<int64_t>(spec.pod_template.size()) + environments;
  if (trainer > 0) annotations += trainer + static_cast<int64_t>(std::string_view(kAnnotationConfig).size());
  if (annotations > rules::kMaxAnnotationBytes) {
    found.add({trainer > 0 ? "spec.trainer" : "spec.template.metadata.annotations",
               fmt::format("the annotations of each pod{} are {} bytes; the maximum is {}: move large parts into a "
                           "ConfigMap, a volume or the image",
                           trainer > 0 ? ", which hold spec.trainer," : "", annotations, rules::kMaxAnnotationBytes)});
  }
  if (spec.nodes > rules::kMaxNodes || pod * spec.nodes <= rules::kMaxTotalBytes) return;
  found.add({trainer > pod / 2 ? "spec.trainer" : "spec.template",
             fmt::format("{} times {} of spec.template{} and spec.trainer are {}; the maximum is {}, because the "
                         "API server stores a copy in each pod: move large parts into a ConfigMap, a volume or "
                         "the image, or use fewer nodes",
                         counted(spec.nodes, "node"), rounded_up_size(pod),
                         environments > 0 ? ", the environment of its containers" : "",
                         rounded_up_size(pod * spec.nodes), rounded_up_size(rules::kMaxTotalBytes))});
}

// Checks that labels and annotations are maps of strings. Returns the size of the annotations, keys and values
// together.
int64_t check_template_metadata(const Json& pod, Found& found) {
  const std::string path = "spec.template";
  int64_t annotations = 0;
  const Json* metadata = member(pod, "metadata", Json::value_t::object, path, found);
  if (metadata == nullptr) return annotations;
  for (const char* key : {"labels", "annotations"}) {
    const Json* map = member(*metadata, key, Json::value_t::object, path + ".metadata", found);
    if (map == nullptr) continue;
    for (const auto& [name, value] : map->items()) {
      if (!value.is_string()) {
        found.add({fmt::format("{}.metadata.{}", path, key),
                   fmt::format("'{}' is not a string; put its value in quotes", shortened(name))});
      } else if (std::string_view(key) == "annotations") {
        annotations += static_cast<int64_t>(name.size() + value.get_ref<const std::string&>().size());
      }
    }
  }
  return annotations;
}

bool is_directory(std::string_view path, std::string_view directory) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path == directory;
}

bool has_large_exponent(std::string_view quantity) {
  const size_t exponent = quantity.find_last_of("eE");
  if (exponent == std::string_view::npos) return false;
  const size_t digits = quantity.find_first_of("0123456789", exponent);
  return digits != std::string_view::npos && quantity.size() - digits > 2;
}

// Whether the quantity is divided although its resource cannot be.
bool is_divided(std::string_view resource, const Json& quantity) {
  return is_extended_resource(resource) && is_quantity(quantity) && !is_whole_quantity(quantity);
}

std::string not_whole(const Json& quantity) {
  return fmt::format("{} {}", shortened(quantity.dump()), rules::kNotWhole);
}

// Reports the quantities of a template that cannot be divided, or that the API server would calculate for minutes.
// Templates are nested at most kMaxTemplateDepth levels, see read_training_job().
void check_template_quantities(const Json& pod_spec, const std::string& spec_path, Found& found) {
  visit_quantities(pod_spec, {.key = spec_path},
                   [&](const FieldPath& path, std::string_view resource, const Json& quantity) {
                     if (found.is_full()) return;
                     if (is_divided(resource, quantity)) found.add({path.text(), not_whole(quantity)});
                     if (!quantity.is_string()) return;
                     const auto& text = quantity.get_ref<const std::string&>();
                     if (text.size() > rules::kMaxQuantity || has_large_exponent(text))
                       found.add({path.text(), fmt::format("{}: {}", shortened(text), rules::kQuantityTooLong)});
                   });
}

void check_container(const TrainingJob& job, const Json& container, const std::string& path, Found& found) {
  const Spec& spec = job.spec;
  const bool is_trainer = string_of(container, "name") == kTrainerContainer;
  const std::string restart_policy = string_of(container, "restartPolicy");
  if (is_trainer && !restart_policy.empty() && restart_policy != "Never")
    found.add({path + ".restartPolicy", rules::kTrainerRestarts});
  if (is_trainer && !elements(container, "restartPolicyRules").empty())
    found.add({path + ".restartPolicyRules", rules::kTrainerRestarts});
  each(container, "env", path, SIZE_MAX, found, [](const Json&, const std::string&) {});
  each(container, "ports", path, rules::kMaxPorts, found, [&](const Json& port, const std::string& port_path) {
    const auto number = port.find("containerPort");
    if (is_trainer || number == port.end() || !number->is_number_integer()) return;
    const auto value = number->get<int64_t>();
    const bool is_of_rendezvous = !may_have_another_port(job) && is_rendezvous_port(value, spec);
    if (is_of_rendezvous || is_metrics_port(value, spec)) found.add({port_path + ".containerPort", rules::kPortTaken});
  });
  each(container, "volumeMounts", path, rules::kMaxVolumes, found,
       [&](const Json& mount, const std::string& mount_path) {
         const std::string where = string_of(mount, "mountPath");
         if (!is_trainer) return;
         if (!spec.trainer.empty() && is_directory(where, kConfigMountPath))
           found.add({mount_path + ".mountPath", rules::kConfigMount});
         if (spec.checkpoints && is_directory(where, rules::kCheckpointMountPath) &&
             string_of(mount, "name") != kCheckpointVolume)
           found.add({mount_path + ".mountPath", rules::kCheckpointMount});
       });
}

void check_pod_spec(const TrainingJob& job, const Json& pod_spec, const std::string& spec_path, Found& found) {
  const std::string restart_policy = string_of(pod_spec, "restartPolicy");
  if (!restart_policy.empty() && restart_policy != "Never")
    found.add({spec_path + ".restartPolicy", rules::kRestartPolicy});
  for (const char* key : {"hostname", "subdomain"}) {
    if (pod_spec.contains(key)) found.add({fmt::format("{}.{}", spec_path, key), rules::kHostname});
  }
  each(pod_spec, "volumes", spec_path, rules::kMaxVolumes, found, [&](const Json& volume, const std::string& at) {
    const std::string name = string_of(volume, "name");
    if (name == kConfigVolume || name == kShmVolume) found.add({at + ".name", rules::kVolumeName});
  });
  int trainers = 0;
  each(pod_spec, "containers", spec_path, rules::kMaxContainers, found,
       [&](const Json& container, const std::string& at) {
         if (string_of(container, "name") == kTrainerContainer) ++trainers;
         check_container(job, container, at, found);
       });
  each(pod_spec, "initContainers", spec_path, rules::kMaxContainers, found, [](const Json&, const std::string&) {});
  if (trainers != 1 && pod_spec.contains("containers") && !pod_spec["containers"].is_null())
    found.add({spec_path + ".containers", rules::kTrainer});
}

// Checks that the template does not contradict the fields of the spec that describe the default pod.
void check_combination(const Spec& spec, const Json& pod_spec, Found& found) {
  for (const Json& container : elements(pod_spec, "containers")) {
    if (text_at(container, "name") == kTrainerContainer && !text_at(container, "image").empty() && !spec.image.empty())
      found.add({"spec.image", rules::kTwoImages});
  }
  if (!spec.checkpoints) return;
  for (const Json& volume : elements(pod_spec, "volumes")) {
    if (text_at(volume, "name") == kCheckpointVolume) found.add({"spec.checkpoints", rules::kTwoCheckpointVolumes});
  }
}

// A number above the limit is reported separately.
int64_t count_containers(const Json& pod) {
  int64_t count = 0;
  for (const char* key : {"containers", "initContainers"}) {
    const size_t size = elements(oarlock::member(pod, "spec"), key).size();
    count += std::min<int64_t>(static_cast<int64_t>(size), rules::kMaxContainers);
  }
  return count;
}

void check_template(const TrainingJob& job, Found& found) {
  const Spec& spec = job.spec;
  const std::string path = "spec.template";
  if (spec.pod_template.empty()) return check_sizes(spec, 0, 1, found);
  if (const auto bytes = static_cast<int64_t>(spec.pod_template.size()); bytes > rules::kMaxTemplateBytes) {
    found.add({path, fmt::format("has {}; the maximum is {}: move large parts into a ConfigMap, a volume or the image",
                                 rounded_up_size(bytes), rounded_up_size(rules::kMaxTemplateBytes))});
    return;
  }
  const Json pod = Json::parse(spec.pod_template, nullptr, false);
  if (!pod.is_object()) {
    found.add({path, "is not JSON"});
    return;
  }
  check_sizes(spec, check_template_metadata(pod, found), count_containers(pod), found);
  const std::string spec_path = path + ".spec";
  if (const Json* pod_spec = member(pod, "spec", Json::value_t::object, path, found)) {
    check_pod_spec(job, *pod_spec, spec_path, found);
    check_template_quantities(*pod_spec, spec_path, found);
    check_combination(spec, *pod_spec, found);
  }
}

void check_quantities(const std::string& path, const Json& resources, Found& found) {
  if (resources.size() > rules::kMaxResources)
    found.add({path, fmt::format("has {} items; the maximum is {}", resources.size(), rules::kMaxResources)});
  for (const auto& [name, quantity] : resources.items()) {
    if (!is_quantity(quantity)) {
      found.add({path + "." + name,
                 fmt::format("{} is not a quantity, {}", shortened(quantity.dump()), similar_quantities(quantity))});
    }
    if (is_divided(name, quantity)) found.add({path + "." + name, not_whole(quantity)});
  }
}

void check_resources(const Spec& spec, Found& found) {
  const bool too_many_gpus = has_too_many_gpus(spec);
  if (!spec.resources_per_node) {
    if (too_many_gpus) found.add({"spec.template.spec.containers", rules::kTooManyGpus});
    return;
  }
  const std::string path = "spec.resourcesPerNode";
  const auto parsed = [](const std::string& text) {
    return text.empty() ? Json::object() : Json::parse(text, nullptr, false);
  };
  const Json requests = parsed(spec.resources_per_node->requests);
  const Json limits = parsed(spec.resources_per_node->limits);
  if (too_many_gpus) {
    const bool is_in_template = count_gpus(limits) <= rules::kMaxProcessesPerNode;
    found.add({is_in_template ? "spec.template.spec.containers" : path + ".limits", rules::kTooManyGpus});
  }
  check_quantities(path + ".requests", requests, found);
  check_quantities(path + ".limits", limits, found);
  for (const auto& [name, quantity] : requests.items()) {
    if (is_extended_resource(name) && !limits.contains(name))
      found.add({fmt::format("{}.requests.{}", path, name), rules::kLimitRequired});
  }
}

void check_checkpoints(const Spec& spec, Found& found) {
  if (!spec.checkpoints) return;
  const std::string path = "spec.checkpoints";
  const Checkpoints& checkpoints = *spec.checkpoints;
  if (checkpoints.claim_name.empty() == checkpoints.size.empty()) found.add({path, rules::kClaimOrSize});
  if (checkpoints.storage_class_name && checkpoints.size.empty())
    found.add({path + ".storageClassName", rules::kClassNeedsSize});
}

void check_rule(const FailureRule& rule, const std::string& path, Found& found) {
  const int given =
      (rule.on_exit_codes ? 1 : 0) + (rule.on_pod_reasons.empty() ? 0 : 1) + (rule.on_pod_conditions.empty() ? 0 : 1);
  if (given != 1) found.add({path, rules::kOneRequirement});
  if (rule.action == FailureAction::kIgnore && !rule.on_exit_codes) found.add({path, rules::kIgnoreNeedsExit});
}

void check_policies(const Spec& spec, Found& found) {
  const std::vector<FailureRule>& all = spec.failure_policy.rules;
  for (size_t i = 0; i < all.size(); ++i) check_rule(all[i], fmt::format("spec.failurePolicy.rules[{}]", i), found);
  if (spec.managed_by.empty()) return;
  const size_t slash = spec.managed_by.find('/');
  const bool two_parts = slash != std::string::npos && slash > 0 && slash + 1 < spec.managed_by.size() &&
                         spec.managed_by.find('/', slash + 1) == std::string::npos;
  if (!two_parts) found.add({"spec.managedBy", rules::kManagedByForm});
}

}  // namespace

std::vector<FieldProblem> validate(const TrainingJob& job) {
  Found found;
  const Spec& spec = job.spec;
  if (!is_name(job.metadata.name)) found.add({"metadata.name", rules::kName});
  if (job.metadata.name.size() + std::to_string(int64_t{spec.nodes} - 1).size() > rules::kNameRoom) {
    found.add({"metadata.name", rules::kNameLength});
  }
  FieldsValidator limits({.key = "spec"}, found.all());
  describe(const_cast<Spec&>(spec), limits);  // a validator changes nothing
  if (spec.elastic &&
      (spec.nodes < spec.elastic->min_nodes || spec.nodes > spec.elastic->max_nodes.value_or(spec.nodes)))
    found.add({"spec.nodes", rules::kElasticBounds});
  check_policies(spec, found);
  if (is_metrics_port(spec.rendezvous.port, spec)) found.add({"spec.rendezvous.port", rules::kPortIsMetrics});
  const std::vector<int64_t> after = ports_after(spec);
  if (std::ranges::any_of(after, [&](int64_t port) { return port > rules::kMaxPort || is_metrics_port(port, spec); }))
    found.add({"spec.rendezvous.port", rules::kPortAfter});
  check_resources(spec, found);
  check_checkpoints(spec, found);
  check_template(job, found);
  return std::move(found.all());
}

}  // namespace oarlock::api
