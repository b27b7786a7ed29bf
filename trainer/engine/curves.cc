#include "trainer/engine/curves.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <set>

#include "trainer/engine/chart.h"

namespace oarlock {
namespace {

constexpr char kLoss[] = "loss";  // the metric that belongs beside the loss in training
constexpr double kWidth = 420;
constexpr double kHeight = 270;
constexpr size_t kColumns = 2;

Curve curve_of(const History& history, const std::string& label,
               const std::function<double(const HistoryEntry&)>& value_of) {
  Curve curve{.label = label, .points = {}};
  for (const HistoryEntry& entry : history) curve.points.emplace_back(entry.epoch, value_of(entry));
  return curve;
}

Curve metric_curve(const History& history, const std::string& name) {
  return curve_of(history, "evaluation", [&name](const HistoryEntry& entry) {
    const auto metric = entry.metrics.find(name);
    return metric == entry.metrics.end() ? std::numeric_limits<double>::quiet_NaN() : metric->second;
  });
}

std::vector<Chart> charts_of(const History& history) {
  std::set<std::string> metrics;
  for (const HistoryEntry& entry : history) {
    for (const auto& [name, value] : entry.metrics) metrics.insert(name);
  }
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

std::string render_curves(const History& history) {
  const std::vector<Chart> charts = charts_of(history);
  const size_t rows = (charts.size() + kColumns - 1) / kColumns;
  const double width = kWidth * static_cast<double>(kColumns);
  const double height = kHeight * static_cast<double>(rows);
  std::string out = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, height);
  for (size_t i = 0; i < charts.size(); ++i) {
    out += render_chart(charts[i], kWidth * static_cast<double>(i % kColumns),
                        kHeight * static_cast<double>(i / kColumns), kWidth, kHeight);
  }
  return out + "</svg>\n";
}

}  // namespace oarlock
