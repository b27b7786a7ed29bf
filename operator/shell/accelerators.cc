#include "operator/shell/accelerators.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "operator/kube/field_filter.h"
#include "operator/kube/json_access.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

// No pod has more; sums and products of such counts cannot overflow.
constexpr int64_t kMostOfAPod = 1'000'000;

// Each resource of each job is a time series, whose name a tenant chooses.
constexpr size_t kMostResources = 8;
constexpr size_t kLongestName = 128;
constexpr size_t kLargestTemplate = 256u << 10;

// A quantity that is a whole number, written as one or as a text; 0 for anything else.
int64_t whole_number(const Json& quantity) {
  if (quantity.is_number_unsigned())
    return static_cast<int64_t>(std::min<uint64_t>(quantity.get<uint64_t>(), kMostOfAPod));
  if (quantity.is_number_integer()) return quantity.get<int64_t>();
  const std::string text = quantity.is_string() ? quantity.get<std::string>() : "";
  int64_t out = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ptr == text.data() + text.size() ? out : 0;
}

// Names of extended resources: a domain and a name.
bool is_resource_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == '/';
  };
  return name.size() <= kLongestName && name.find('/') != std::string_view::npos &&
         std::ranges::all_of(name, is_allowed);
}

}  // namespace

std::map<std::string, int64_t> accelerators_of(const std::string& pod_template) {
  static const kube::FieldFilter kFields{"spec.containers.resources.limits"};
  std::map<std::string, int64_t> out;
  if (pod_template.size() > kLargestTemplate || pod_template.find("\"limits\"") == std::string::npos) return out;
  const auto parsed = kFields.parse(pod_template);
  if (!parsed) return out;
  for (const Json& container : kube::elements(kube::member(*parsed, "spec"), "containers")) {
    const Json& limits = kube::member(kube::member(container, "resources"), "limits");
    if (!limits.is_object()) continue;
    for (const auto& [name, quantity] : limits.items()) {
      if (!is_resource_name(name)) continue;  // Kubernetes' own have no domain
      if (out.size() >= kMostResources && !out.contains(name)) continue;
      if (const int64_t count = whole_number(quantity); count > 0)
        out[name] = std::min(out[name] + std::min(count, kMostOfAPod), kMostOfAPod);
    }
  }
  return out;
}

}  // namespace oarlock::control
