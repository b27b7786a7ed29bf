#include "operator/api/resources.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "common/contract.h"
#include "common/json_access.h"
#include "operator/api/rules.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxGpus = 1'000'000;  // more than any node has, so that sums cannot overflow

int64_t whole_number(const Json& quantity) {
  int64_t value = 0;
  if (quantity.is_number_unsigned()) {
    value = static_cast<int64_t>(std::min<uint64_t>(quantity.get<uint64_t>(), kMaxGpus));
  } else if (quantity.is_string()) {
    const auto& text = quantity.get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return 0;
  }
  return std::clamp<int64_t>(value, 0, kMaxGpus);
}

bool is_gpu(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view domain = name.substr(0, slash);
  const std::string_view resource = name.substr(slash + 1);
  if (domain == "gpu.intel.com") return resource == "i915" || resource == "xe";
  return resource == "gpu" || resource.starts_with("gpu.") || resource.starts_with("mig-");
}

Json limits_of_trainer(const Spec& spec) {
  Json limits = Json::parse(spec.resources_per_node ? spec.resources_per_node->limits : "", nullptr, false);
  if (!limits.is_object()) limits = Json::object();
  const Json pod = Json::parse(spec.pod_template, nullptr, false);
  for (const Json& container : elements(member(pod, "spec"), "containers")) {
    if (text_at(container, "name") != kTrainerContainer) continue;
    const Json& own = member(member(container, "resources"), "limits");
    if (own.is_object()) limits.merge_patch(own);
  }
  return limits;
}

}  // namespace

// The expression is the one in the schemas that Kubernetes generates for Quantity.
bool is_quantity(const Json& value) {
  if (value.is_number()) return true;
  if (!value.is_string()) return false;
  static const std::regex kForm(
      R"((\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)");
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= rules::kMaxQuantity && std::regex_match(text, kForm);
}

bool is_extended_resource(std::string_view name) {
  return name.find('/') != std::string_view::npos && !name.starts_with("kubernetes.io/");
}

int64_t count_gpus(const Json& limits) {
  int64_t count = 0;
  if (!limits.is_object()) return count;
  for (const auto& [name, quantity] : limits.items()) {
    if (is_gpu(name)) count = std::min(count + whole_number(quantity), kMaxGpus);
  }
  return count;
}

void resolve_processes_per_node(Spec& spec) {
  const bool is_auto = spec.processes_from == NumberForm::kName ||
                       (spec.processes_from == NumberForm::kAbsent && spec.resources_per_node);
  if (is_auto) spec.processes_per_node = static_cast<int>(std::max<int64_t>(count_gpus(limits_of_trainer(spec)), 1));
}

}  // namespace oarlock::api
