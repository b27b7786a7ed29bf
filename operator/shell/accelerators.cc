#include "operator/shell/accelerators.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "operator/kube/json_access.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

// No pod has more; sums and products of such counts cannot overflow.
constexpr int64_t kMostOfAPod = 1'000'000;

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

}  // namespace

std::map<std::string, int64_t> accelerators_of(const std::string& pod_template) {
  std::map<std::string, int64_t> out;
  if (pod_template.find("\"limits\"") == std::string::npos) return out;  // not worth parsing at each scrape
  const Json parsed = Json::parse(pod_template, nullptr, false);
  for (const Json& container : kube::elements(kube::member(parsed, "spec"), "containers")) {
    const Json& limits = kube::member(kube::member(container, "resources"), "limits");
    if (!limits.is_object()) continue;
    for (const auto& [name, quantity] : limits.items()) {
      if (name.find('/') == std::string::npos) continue;  // Kubernetes' own have no domain
      if (const int64_t count = whole_number(quantity); count > 0)
        out[name] = std::min(out[name] + std::min(count, kMostOfAPod), kMostOfAPod);
    }
  }
  return out;
}

}  // namespace oarlock::control
