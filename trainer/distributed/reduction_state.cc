#include "trainer/distributed/reduction_state.h"

#include <algorithm>

namespace oarlock {
namespace {

using Json = nlohmann::json;

Json settings_of(const DdpConfig& config) {
  return {{"bucket_cap_mb", config.bucket_cap_mb},
          {"find_unused_parameters", config.find_unused_parameters},
          {"static_graph", config.static_graph}};
}

// Returns nullopt unless the buckets contain each name exactly once.
std::optional<std::vector<std::vector<size_t>>> buckets_from_json(const Json& values,
                                                                  const std::vector<std::string>& names) {
  std::map<std::string, size_t> left;
  for (size_t i = 0; i < names.size(); ++i) left[names[i]] = i;
  std::vector<std::vector<size_t>> out;
  for (const Json& bucket : values.at("buckets")) {
    out.emplace_back();
    for (const Json& name : bucket) {
      const auto found = left.find(name.get<std::string>());
      if (found == left.end()) return std::nullopt;
      out.back().push_back(found->second);
      left.erase(found);
    }
  }
  if (!left.empty()) return std::nullopt;
  return out;
}

}  // namespace

Json to_json(const std::vector<ReducerState>& states, const std::vector<std::string>& names, const DdpConfig& config) {
  Json buckets = Json::array();
  for (const std::vector<size_t>& bucket : states.at(0).buckets) {
    buckets.push_back(Json::array());
    for (const size_t index : bucket) buckets.back().push_back(names.at(index));
  }
  Json ranks = Json::array();
  for (const ReducerState& rank : states) ranks.push_back({{"uses", rank.uses}, {"used", rank.used}});
  return {{"settings", settings_of(config)},
          {"parameters", names},
          {"buckets", buckets},
          {"rebuilt", states[0].rebuilt},
          {"ranks", ranks}};
}

std::optional<ReducerState> reducer_state_from_json(const Json& values, const std::vector<std::string>& names,
                                                    const DdpConfig& config, int rank, int world_size) {
  if (values.is_null() || values.at("ranks").size() != static_cast<size_t>(world_size)) return std::nullopt;
  if (values.at("settings") != settings_of(config) || values.at("parameters") != Json(names)) return std::nullopt;
  std::optional<std::vector<std::vector<size_t>>> buckets = buckets_from_json(values, names);
  if (!buckets) return std::nullopt;
  const Json& own = values["ranks"].at(static_cast<size_t>(rank));
  ReducerState out{.buckets = std::move(*buckets),
                   .rebuilt = values.at("rebuilt").get<bool>(),
                   .ready_order = {},
                   .uses = own.at("uses").get<std::vector<int64_t>>(),
                   .used = own.at("used").get<std::vector<int64_t>>()};
  const auto fits = [&](const std::vector<int64_t>& list) { return list.empty() || list.size() == names.size(); };
  if (!fits(out.uses) || out.used.size() != out.uses.size()) return std::nullopt;
  return out;
}

}  // namespace oarlock
