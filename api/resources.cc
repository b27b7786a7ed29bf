#include "api/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "api/rules.h"
#include "common/contract.h"
#include "common/json_access.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxGpus = 1'000'000;  // more than any node has, so that sums cannot overflow

// Returns whether the value of a PodSpec's field is a quantity.
bool has_quantity(std::string_view key) { return key == "sizeLimit" || key == "divisor"; }

// Returns whether the value of a PodSpec's field is a map of quantities by resource.
bool has_quantities(std::string_view key) { return key == "limits" || key == "requests" || key == "overhead"; }

// Returns the factor of a suffix of a Quantity: 1024 for "Ki", 0.001 for "m", 1 for none.
double factor_of(std::string_view suffix) {
  constexpr std::string_view kSmall = "num";     // 1e-9, 1e-6, 1e-3
  constexpr std::string_view kLarge = "KMGTPE";  // powers of 1000, or of 1024 before an 'i'
  if (suffix.empty()) return 1;
  if (const size_t small = kSmall.find(suffix.front()); small != std::string_view::npos)
    return std::pow(1000.0, static_cast<double>(small) - 3);
  const size_t large = kLarge.find(suffix.front() == 'k' ? 'K' : suffix.front());
  return std::pow(suffix.ends_with('i') ? 1024.0 : 1000.0, static_cast<double>(large) + 1);
}

// Returns the value of a quantity; 0 for any other text.
double value_of(const Json& quantity) {
  if (quantity.is_number()) return quantity.get<double>();
  double value = 0;
  std::string_view text = quantity.get_ref<const std::string&>();
  if (text.starts_with('+')) text.remove_prefix(1);  // from_chars() reads no '+'
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  return value * factor_of(text.substr(static_cast<size_t>(end - text.data())));
}

// Returns the value of a quantity, between 0 and kMaxGpus. A value that is not whole, which the API server rejects for
// extended resources, counts as 0.
int64_t whole_number(const Json& quantity) {
  if (!is_quantity(quantity)) return 0;
  const double value = value_of(quantity);
  const double whole = std::round(value);
  if (std::abs(value - whole) > 1e-6) return 0;
  return static_cast<int64_t>(std::clamp(whole, 0.0, static_cast<double>(kMaxGpus)));
}

bool is_gpu(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view domain = name.substr(0, slash);
  const std::string_view resource = name.substr(slash + 1);
  if (domain == "gpu.intel.com") return resource == "i915" || resource == "xe";
  return resource == "gpu" || resource.starts_with("gpu.") || resource.starts_with("mig-");
}

// Returns spec.containers of a pod template with the name and the GPU limits of each container. Everything else is
// skipped without building a tree, which may take sixty times the size of the text. Returns a discarded value for a
// text that is not JSON.
Json parse_gpu_limits(std::string_view pod_template) {
  const auto keep = [](int depth, Json::parse_event_t event, const Json& parsed) {
    // The depth of a key is the number of maps and lists around it.
    constexpr int kPod = 1, kSpec = 2, kContainer = 4, kResources = 5, kLimits = 6;
    if (event != Json::parse_event_t::key) return depth < kLimits || !parsed.is_structured();
    const auto& key = parsed.get_ref<const std::string&>();
    if (depth == kPod) return key == "spec";
    if (depth == kSpec) return key == "containers";
    if (depth == kContainer) return key == "name" || key == "resources";
    if (depth == kResources) return key == "limits";
    return depth == kLimits && is_gpu(key);
  };
  return Json::parse(pod_template, keep, /*allow_exceptions=*/false);
}

// Returns the GPU limits of the container "trainer".
Json limits_of_trainer(const Spec& spec) {
  Json limits = Json::parse(spec.resources_per_node ? spec.resources_per_node->limits : "", nullptr, false);
  if (!limits.is_object()) limits = Json::object();
  if (spec.pod_template.size() > static_cast<size_t>(rules::kMaxTemplateBytes)) return limits;
  const Json pod = parse_gpu_limits(spec.pod_template);
  for (const Json& container : elements(member(pod, "spec"), "containers")) {
    if (text_at(container, "name") != kTrainerContainer) continue;
    const Json& resources = member(container, "resources");
    const Json& own = member(resources, "limits");
    const auto is_removed = [](const Json& object, const char* key) {
      return object.is_object() && object.contains(key) && object[key].is_null();
    };
    if (is_removed(container, "resources") || is_removed(resources, "limits")) limits = Json::object();
    if (own.is_object()) limits.merge_patch(own);
  }
  return limits;
}

bool follows_gpus(const Spec& spec) {
  return spec.processes_from == NumberForm::kName ||
         (spec.processes_from == NumberForm::kAbsent && spec.resources_per_node);
}

}  // namespace

void visit_quantities(const Json& value, const FieldPath& path, const QuantityVisitor& visit) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i].is_structured())
        visit_quantities(value[i], {.parent = &path, .index = static_cast<std::ptrdiff_t>(i)}, visit);
    }
  }
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.items()) {
    if (!item.is_structured() && !has_quantity(key)) continue;
    const FieldPath item_path{.parent = &path, .key = key};
    if (has_quantity(key)) {
      visit(item_path, "", item);
    } else if (has_quantities(key) && item.is_object()) {
      for (const auto& [resource, quantity] : item.items())
        visit({.parent = &item_path, .key = resource}, resource, quantity);
    } else {
      visit_quantities(item, item_path, visit);
    }
  }
}

// The expression is the one in the schemas that Kubernetes generates for Quantity, without a negative sign and with
// exponents of one or two digits.
bool is_quantity(const Json& value) {
  if (value.is_number()) return value >= 0;
  if (!value.is_string()) return false;
  static const std::regex kForm(
      R"(\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?)");
  const auto& text = value.get_ref<const std::string&>();
  return text.size() <= rules::kMaxQuantity && std::regex_match(text, kForm);
}

std::string similar_quantities(const Json& value) {
  static const std::regex kWithBytes(R"((\d{1,12}(\.\d{1,9})?) ?([kKMGTPE])i?[bB])");
  std::smatch found;
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (!std::regex_match(text, found, kWithBytes)) return "such as 4, 500m or 16Gi";
  const bool is_kilo = found[3].str() == "k" || found[3].str() == "K";  // 1000 is k, 1024 is Ki
  return fmt::format("such as {0}{1} or {0}{2}i", found[1].str(), is_kilo ? "k" : found[3].str(),
                     is_kilo ? "K" : found[3].str());
}

double quantity_value(const Json& value) { return is_quantity(value) ? value_of(value) : 0; }

bool is_extended_resource(std::string_view name) {
  return name.find('/') != std::string_view::npos && !name.starts_with("kubernetes.io/");
}

bool is_whole_quantity(const Json& quantity) {
  const double thousandths = std::ceil(value_of(quantity) * 1000 - 1e-6);
  return std::fmod(thousandths, 1000) == 0;
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
  if (!follows_gpus(spec)) return;
  const int64_t gpus = count_gpus(limits_of_trainer(spec));
  spec.processes_per_node = static_cast<int>(std::clamp<int64_t>(gpus, 1, rules::kMaxProcessesPerNode));
}

bool has_too_many_gpus(const Spec& spec) {
  return follows_gpus(spec) && count_gpus(limits_of_trainer(spec)) > rules::kMaxProcessesPerNode;
}

}  // namespace oarlock::api
