#include "trainer/report/run_report.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"
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
    const size_t row = i / kChartsPerRow;
    out += render_chart(charts[i], kWidth * static_cast<double>(i % kChartsPerRow), kHeight * static_cast<double>(row),
                        kWidth, kHeight);
  }
  return out + "</svg>\n";
}

// ---- Recording ---------------------------------------------------------------------------------------------------

namespace {

constexpr char kColumns[] = "columns";
constexpr char kLossSum[] = "loss_sum";
constexpr char kSamples[] = "samples";
constexpr char kLearningRate[] = "learning_rate";
constexpr char kSeconds[] = "seconds";

std::filesystem::path path_in(const std::filesystem::path& directory, const std::string& file) {
  return file.empty() ? std::filesystem::path() : directory / file;  // an absolute path is unchanged
}

}  // namespace

void write_report(const std::vector<ReportFile>& files, const Logger& logger) {
  for (const auto& [path, content] : files) {
    Result<void> written = path.has_parent_path() ? make_writable_directory(path.parent_path()) : Result<void>();
    if (written) written = write_file_atomically(path, content);
    if (!written) logger.warn("report: the history of the run was not written", {{"error", written.error().message}});
  }
}

RunReport::RunReport(const ReportConfig& config, const std::filesystem::path& directory, const ProcessGroup& group,
                     const Clock& clock)
    : history_path_(path_in(directory, config.history)),
      curves_path_(path_in(directory, config.curves)),
      group_(group),
      clock_(clock),
      begin_(clock.steady()) {}

void RunReport::add_step(const at::Tensor& loss, int64_t samples, double learning_rate) {
  if (!is_enabled()) return;
  learning_rate_ = learning_rate;
  const at::NoGradGuard no_gradients;
  const at::Tensor value = loss.detach().to(at::kDouble);
  const at::Tensor own = at::stack({at::nan_to_num(value, 0.0, 0.0, 0.0), at::isfinite(value).to(at::kDouble)});
  sums_ = sums_.defined() ? sums_.add_(own, static_cast<double>(samples)) : own * static_cast<double>(samples);
}

void RunReport::reduce_losses() {
  if (!is_enabled()) return;
  std::array<double, 2> sums{};
  if (sums_.defined()) {
    const at::Tensor host = sums_.cpu();
    sums = {host[0].item<double>(), host[1].item<double>()};
  }
  group_.all_reduce_sum(sums);
  if (sums_.defined()) sums_.zero_();  // after the collective, which throws if a rank was lost
  loss_sum_ += sums[0];
  samples_ += sums[1];
}

std::vector<ReportFile> RunReport::add_evaluation(int64_t step, double epoch,
                                                  const std::map<std::string, double>& metrics) {
  if (!is_enabled()) return {};
  reduce_losses();
  const bool again = !history_.empty() && history_.back().step == step;  // after a resume at this step
  HistoryEntry entry{.epoch = epoch,
                     .step = step,
                     .train_loss = samples_ > 0 ? loss_sum_ / samples_ : std::numeric_limits<double>::quiet_NaN(),
                     .learning_rate = learning_rate_,
                     .seconds = seconds(),
                     .metrics = metrics};
  if (again && samples_ == 0) entry.train_loss = history_.back().train_loss;
  loss_sum_ = samples_ = 0;
  add_entry(history_, std::move(entry));
  std::vector<ReportFile> files;
  if (group_.rank() != 0) return files;
  if (!history_path_.empty()) files.push_back({history_path_, to_columns(history_).dump(2) + "\n"});
  if (!curves_path_.empty()) files.push_back({curves_path_, render_curves(history_)});
  return files;
}

double RunReport::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(clock_.steady() - begin_).count();
}

nlohmann::json RunReport::values() const {
  return {{kColumns, to_columns(history_)},
          {kLossSum, loss_sum_},
          {kSamples, samples_},
          {kLearningRate, learning_rate_},
          {kSeconds, seconds()}};
}

Result<void> RunReport::restored(const nlohmann::json& values) {
  ASSIGN_OR_RETURN(history_, from_columns(values.at(kColumns)));
  loss_sum_ = values.at(kLossSum);
  samples_ = values.at(kSamples);
  learning_rate_ = values.at(kLearningRate);
  seconds_before_ = values.at(kSeconds);
  begin_ = clock_.steady();
  return {};
}

}  // namespace oarlock
