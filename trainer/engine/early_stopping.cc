#include "trainer/engine/early_stopping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr char kMetrics[] = "metrics";
constexpr char kPatienceLost[] = "patience_lost";
constexpr char kImproved[] = "improved";
constexpr char kName[] = "name";
constexpr char kBestValue[] = "best";
constexpr char kPlus[] = "inf";
constexpr char kMinus[] = "-inf";
constexpr char kGraceLeft[] = "grace_left";

double first_best(const WatchedMetric& metric) {
  return metric.init_best_score.value_or(metric.mode == MetricMode::kMin ? kInfinity : -kInfinity);
}

bool is_better(const WatchedMetric& metric, double value, double best) {
  return metric.mode == MetricMode::kMin ? value < best - metric.min_delta : value > best + metric.min_delta;
}

// JSON has no infinity.
Json to_json(double value) { return std::isfinite(value) ? Json(value) : Json(value > 0 ? kPlus : kMinus); }

double number_from(const Json& json) {
  if (json == kPlus) return kInfinity;
  if (json == kMinus) return -kInfinity;
  return json.get<double>();
}

Result<double> value_of(const WatchedMetric& metric, const Metrics& metrics) {
  const auto found = metrics.find(metric.name);
  if (found != metrics.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  const std::string near = suggest(metric.name, names);
  return fail(ExitCode::kConfig,
              fmt::format("early_stopping: the evaluation has no metric '{}', only {}{}", metric.name,
                          fmt::join(names, ", "), near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
}

}  // namespace

EarlyStopping::EarlyStopping(EarlyStoppingConfig config, const Monitor& monitor)
    : config_(std::move(config)), watched_(config_.metrics.size()), patience_left_(config_.patience.value_or(0)) {
  for (WatchedMetric& metric : config_.metrics) {
    if (!metric.name.empty()) continue;
    metric.name = monitor.metric;
    metric.mode = monitor.mode;
  }
  reset();
}

void EarlyStopping::reset() {
  for (size_t i = 0; i < watched_.size(); ++i) reset(i);
}

void EarlyStopping::reset(size_t metric) {
  watched_[metric] = {first_best(config_.metrics[metric]), config_.metrics[metric].grace_period, false};
}

Result<bool> EarlyStopping::observe(const Metrics& metrics) {
  if (!config_.patience) return false;
  std::vector<double> values;
  for (const WatchedMetric& metric : config_.metrics) {
    ASSIGN_OR_RETURN(const double value, value_of(metric, metrics));
    values.push_back(value);
  }
  const bool grace_was_over =
      std::all_of(watched_.begin(), watched_.end(), [](const Watched& watched) { return watched.grace_left == 0; });
  for (size_t i = 0; i < watched_.size(); ++i) {
    watched_[i].has_improved = is_better(config_.metrics[i], values[i], watched_[i].best);
    watched_[i].grace_left = std::max<int64_t>(watched_[i].grace_left - 1, 0);
  }
  const auto improved = [](const Watched& watched) { return watched.has_improved; };
  has_improved_ = config_.aggregate == Aggregate::kAll ? std::all_of(watched_.begin(), watched_.end(), improved)
                                                       : std::any_of(watched_.begin(), watched_.end(), improved);
  if (has_improved_) {
    for (size_t i = 0; i < watched_.size(); ++i) {
      if (watched_[i].has_improved) watched_[i].best = values[i];
    }
    patience_left_ = *config_.patience;
  } else if (grace_was_over) {
    --patience_left_;
  }
  stopped_ = patience_left_ <= 0;
  return stopped_;
}

Result<bool> EarlyStopping::observe(const Metrics& metrics, const ProcessGroup& group) {
  if (!config_.patience) return false;
  Result<std::string> state;
  if (group.rank() == 0) state = observe(metrics).map([&](bool) { return values().dump(); });
  ASSIGN_OR_RETURN(const std::string shared, group.broadcast(state));
  if (group.rank() != 0) RETURN_IF_ERROR(restored(Json::parse(shared)));
  return stopped_;
}

std::string EarlyStopping::reason() const {
  std::vector<std::string> bests;
  for (size_t i = 0; i < watched_.size(); ++i) {
    const double best = watched_[i].best;
    bests.push_back(std::isfinite(best) ? fmt::format("{} (best {:.6g})", config_.metrics[i].name, best)
                                        : config_.metrics[i].name);
  }
  const std::string_view joint = config_.aggregate == Aggregate::kAll ? " and " : " or ";
  return fmt::format("no improvement of {} for {} evaluations", fmt::join(bests, joint), config_.patience.value_or(0));
}

Json EarlyStopping::values() const {
  Json metrics = Json::array();
  for (size_t i = 0; i < watched_.size(); ++i) {
    metrics.push_back({{kName, config_.metrics[i].name},
                       {kBestValue, to_json(watched_[i].best)},
                       {kGraceLeft, watched_[i].grace_left},
                       {kImproved, watched_[i].has_improved}});
  }
  return {
      {kMetrics, metrics}, {kPatienceLost, config_.patience.value_or(0) - patience_left_}, {kImproved, has_improved_}};
}

Result<void> EarlyStopping::restored(const Json& values) {
  const Json& metrics = values.at(kMetrics);
  std::vector<Watched> watched;
  for (size_t i = 0; i < std::max(metrics.size(), watched_.size()); ++i) {
    if (metrics.size() != watched_.size() || metrics.at(i).at(kName) != config_.metrics[i].name) {
      return fail(ExitCode::kConfig,
                  "early_stopping: the checkpoint watched other metrics than the configuration; put them back, or "
                  "use another checkpoint.dir");
    }
    watched.push_back({number_from(metrics[i].at(kBestValue)), metrics[i].at(kGraceLeft), metrics[i].at(kImproved)});
  }
  const bool has_improved = values.at(kImproved);
  patience_left_ = config_.patience.value_or(0) - values.at(kPatienceLost).get<int64_t>();
  has_improved_ = has_improved;
  watched_ = std::move(watched);
  stopped_ = config_.patience.has_value() && patience_left_ <= 0;
  return {};
}

}  // namespace oarlock
