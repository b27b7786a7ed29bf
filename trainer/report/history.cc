#include "trainer/report/history.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "trainer/report/svg_chart.h"

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

// ---- charts --------------------------------------------------------------------------------------------------------

constexpr char kLoss[] = "loss";  // the metric that is plotted with the training loss
constexpr double kWidth = 420;
constexpr double kHeight = 270;
constexpr size_t kChartsPerRow = 2;

Curve curve_of(const History& history, const std::string& label,
               const std::function<double(const HistoryEntry&)>& value_of) {
  Curve curve{.label = label, .points = {}};
  for (const HistoryEntry& entry : history) curve.points.emplace_back(entry.epoch, value_of(entry));
  return curve;
}

Curve metric_curve(const History& history, const std::string& name) {
  return curve_of(history, "evaluation", [&name](const HistoryEntry& entry) {
    const auto metric = entry.metrics.find(name);
    return metric == entry.metrics.end() ? kNone : metric->second;
  });
}

std::vector<Chart> charts_of(const History& history) {
  std::set<std::string> metrics = metric_names(history);
  std::vector<Chart> charts;
  const auto add = [&charts](const std::string& title) -> Chart& {
    return charts.emplace_back(Chart{.title = title, .x_label = "epoch", .curves = {}});
  };
  Chart& loss = add(kLoss);
  loss.curves.push_back(curve_of(history, "training", [](const HistoryEntry& entry) { return entry.train_loss; }));
  if (metrics.erase(kLoss) > 0) loss.curves.push_back(metric_curve(history, kLoss));
  for (const std::string& name : metrics) add(name).curves.push_back(metric_curve(history, name));
  add("learning rate").curves.push_back(curve_of(history, "training", [](const HistoryEntry& entry) {
    return entry.learning_rate;
  }));
  return charts;
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

std::string render_curves(const History& history) {
  const std::vector<Chart> charts = charts_of(history);
  const size_t rows = (charts.size() + kChartsPerRow - 1) / kChartsPerRow;
  const double width = kWidth * static_cast<double>(kChartsPerRow);
  const double height = kHeight * static_cast<double>(rows);
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, height);
  for (size_t i = 0; i < charts.size(); ++i) {
    out += render_chart(charts[i], kWidth * static_cast<double>(i % kChartsPerRow),
                        kHeight * static_cast<double>(i / kChartsPerRow), kWidth, kHeight);
  }
  return out + "</svg>\n";
}

}  // namespace oarlock
