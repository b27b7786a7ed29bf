#include "trainer/config/metric_names.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock {
namespace {

constexpr size_t kMaxNameBytes = 250;  // MLflow's limit
// Metrics of every run, to which no other metric may be renamed unless they have another name themselves.
constexpr std::array<std::string_view, 4> kCommonNames = {"loss", "epoch", "learning_rate", "samples_per_second"};

// Returns why a name cannot be used in the trackers; empty if it can.
std::string problem_of(const std::string& name) {
  if (name.empty()) return "must not be empty";
  if (name.size() > kMaxNameBytes) return fmt::format("must have at most {} bytes", kMaxNameBytes);
  if (!is_printable(name)) return "must be printable";
  if (name.starts_with('_')) return "must not begin with '_', as names of W&B itself do";
  return "";
}

}  // namespace

Result<MetricNames> MetricNames::parse(std::string_view json) {
  MetricNames out;
  if (json.empty()) return out;
  const nlohmann::json object = parse_untrusted_json(json);
  if (!object.is_object()) return fail(ExitCode::kConfig, "expected a map of names");
  std::set<std::string> used;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_string())
      return fail(ExitCode::kConfig, fmt::format("'{}': expected a name, which is a string", shortened(name)));
    const auto replacement = value.get<std::string>();
    if (name.empty()) return fail(ExitCode::kConfig, "a name must not be empty");
    if (const std::string problem = problem_of(replacement); !problem.empty())
      return fail(ExitCode::kConfig,
                  fmt::format("'{}': the name '{}' {}", shortened(name), shortened(replacement), problem));
    if (!used.insert(replacement).second)
      return fail(ExitCode::kConfig, fmt::format("two metrics would have the name '{}'", shortened(replacement)));
    (name.ends_with('/') ? out.beginnings_ : out.names_).emplace(name, replacement);
  }
  for (const std::string_view name : kCommonNames) {
    if (used.contains(std::string(name)) && out.of(std::string(name)) == name && !out.names_.contains(name))
      return fail(ExitCode::kConfig, fmt::format("two metrics would have the name '{}'; rename '{}', too", name, name));
  }
  return out;
}

std::string MetricNames::of(const std::string& name) const {
  if (const auto whole = names_.find(name); whole != names_.end()) return whole->second;
  for (size_t slash = name.rfind('/'); slash != std::string::npos;
       slash = slash == 0 ? slash - 1 : name.rfind('/', slash - 1)) {
    const auto beginning = beginnings_.find(std::string_view(name).substr(0, slash + 1));
    if (beginning != beginnings_.end()) return beginning->second + name.substr(slash + 1);
  }
  return name;
}

}  // namespace oarlock
