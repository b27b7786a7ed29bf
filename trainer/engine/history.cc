#include "trainer/engine/history.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr char kStep[] = "step";
constexpr std::string_view kMetricPrefix = "val_";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

constexpr std::array<std::pair<const char*, double HistoryEntry::*>, 4> kNumbers = {{
    {"epoch", &HistoryEntry::epoch},
    {"train_loss", &HistoryEntry::train_loss},
    {"learning_rate", &HistoryEntry::learning_rate},
    {"seconds", &HistoryEntry::seconds},
}};

Json to_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

double number_from(const Json& value) { return value.is_null() ? kNone : value.get<double>(); }

std::set<std::string> metric_names(const History& history) {
  std::set<std::string> names;
  for (const HistoryEntry& entry : history) {
    for (const auto& [name, value] : entry.metrics) names.insert(name);
  }
  return names;
}

}  // namespace

void add_entry(History& history, HistoryEntry entry) {
  while (!history.empty() && history.back().step >= entry.step) history.pop_back();
  history.push_back(std::move(entry));
}

Json to_columns(const History& history) {
  Json columns = {{kStep, Json::array()}};
  for (const auto& [name, member] : kNumbers) columns[name] = Json::array();
  const std::set<std::string> metrics = metric_names(history);
  for (const HistoryEntry& entry : history) {
    columns[kStep].push_back(entry.step);
    for (const auto& [name, member] : kNumbers) columns[name].push_back(to_json(entry.*member));
    for (const std::string& name : metrics) {
      const auto metric = entry.metrics.find(name);
      columns[std::string(kMetricPrefix) + name].push_back(
          to_json(metric == entry.metrics.end() ? kNone : metric->second));
    }
  }
  return columns;
}

Result<History> from_columns(const Json& columns) {
  try {
    History history(columns.at(kStep).size());
    for (const auto& [key, values] : columns.items()) {
      if (values.size() != history.size()) {
        return fail(ExitCode::kDataErr, fmt::format("history: the column '{}' has {} entries, '{}' has {}", key,
                                                    values.size(), kStep, history.size()));
      }
    }
    for (size_t i = 0; i < history.size(); ++i) {
      history[i].step = columns.at(kStep)[i];
      for (const auto& [name, member] : kNumbers) history[i].*member = number_from(columns.at(name)[i]);
      for (const auto& [key, values] : columns.items()) {
        if (key.starts_with(kMetricPrefix) && !values[i].is_null())
          history[i].metrics.emplace(key.substr(kMetricPrefix.size()), values[i].get<double>());
      }
    }
    return history;
  } catch (const Json::exception& error) {
    return fail(ExitCode::kDataErr, fmt::format("history: {}", error.what()));
  }
}

}  // namespace oarlock
