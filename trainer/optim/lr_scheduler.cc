#include "trainer/optim/lr_scheduler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace oarlock {
namespace {

double cosine(double from, double to, double fraction) {
  return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * fraction));
}

struct Cycle {
  double first, peak, last;
};

// Rises to the peak over the first pct_start of the length, then falls.
double one_cycle(const ScheduleConfig& config, const Cycle& cycle, double t, double length) {
  const auto anneal = [&](double from, double to, double fraction) {
    return config.anneal == Anneal::kCosine ? cosine(from, to, fraction) : from + (to - from) * fraction;
  };
  const double peak = config.pct_start * length - 1.0;
  const double end = length - 1.0;
  if (t <= peak) return peak > 0 ? anneal(cycle.first, cycle.peak, t / peak) : cycle.peak;
  return end > peak ? anneal(cycle.peak, cycle.last, std::min((t - peak) / (end - peak), 1.0)) : cycle.last;
}

double schedule_factor(const ScheduleConfig& config, int64_t t, int64_t length) {
  const auto gamma_to = [&](int64_t power) { return std::pow(config.gamma, static_cast<double>(power)); };
  const double fraction = std::min(1.0, static_cast<double>(t) / static_cast<double>(length));
  switch (config.kind) {
    case ScheduleKind::kConstant:
    case ScheduleKind::kPlateau:
      return 1;
    case ScheduleKind::kStep:
      return gamma_to(t / config.step_size);
    case ScheduleKind::kMultiStep:
      return gamma_to(std::upper_bound(config.milestones.begin(), config.milestones.end(), t) -
                      config.milestones.begin());
    case ScheduleKind::kExponential:
      return gamma_to(t);
    case ScheduleKind::kLinear:
      return 1.0 + (config.min_ratio - 1.0) * fraction;
    case ScheduleKind::kCosine:
      return cosine(1.0, config.min_ratio, fraction);
    case ScheduleKind::kOneCycle:
      return one_cycle(config, {1.0 / config.div_factor, 1.0, 1.0 / config.div_factor / config.final_div_factor},
                       static_cast<double>(t), static_cast<double>(length));
  }
  return 1;
}

// The position within the schedule in its intervals; negative before its beginning.
struct SchedulePosition {
  int64_t t, length;
};

SchedulePosition position_in_schedule(const ScheduleConfig& config, const RunProgress& progress) {
  const bool by_epoch = config.interval == ScheduleInterval::kEpoch;
  const int64_t rest = by_epoch ? progress.total_epochs : progress.total_steps - config.warmup_steps;
  return {by_epoch ? progress.epoch : progress.step - config.warmup_steps,
          std::max<int64_t>(config.length.value_or(rest), 1)};
}

double warmup_factor(const ScheduleConfig& config, int64_t step) {
  if (step >= config.warmup_steps) return 1;
  const auto length = static_cast<double>(config.warmup_steps);
  if (config.warmup_form == WarmupForm::kSedd) return static_cast<double>(step + 1) / length;
  const double first = config.warmup_start_factor.value_or(1.0 / length);
  return first + (1.0 - first) * static_cast<double>(step) / length;
}

}  // namespace

void LrScheduler::apply(Optimizer& optimizer) const {
  optimizer.set_learning_rates([this](double lr) { return learning_rate(lr); });
  if (const std::optional<double> value = momentum()) optimizer.set_momentum(*value);
}

double LrScheduler::learning_rate(double lr) const {
  const double peak = reduced(lr);
  const double warmup = warmup_factor(config_, progress_.step);
  const auto [t, length] = position_in_schedule(config_, progress_);
  return t < 0 ? peak * warmup : peak * warmup * schedule_factor(config_, t, length);
}

std::optional<double> LrScheduler::momentum() const {
  if (config_.kind != ScheduleKind::kOneCycle || !config_.cycle_momentum) return std::nullopt;
  const auto [t, length] = position_in_schedule(config_, progress_);
  return one_cycle(config_, {config_.max_momentum, config_.base_momentum, config_.max_momentum},
                   static_cast<double>(std::max<int64_t>(t, 0)), static_cast<double>(length));
}

// ---- plateau -------------------------------------------------------------------------------------------------------

bool LrScheduler::is_better(double metric) const {
  if (!best_) return std::isfinite(metric);
  const bool relative = config_.plateau.threshold_mode == ThresholdMode::kRelative;
  if (config_.plateau.mode == MetricMode::kMin) {
    return metric < (relative ? *best_ * (1.0 - config_.plateau.threshold) : *best_ - config_.plateau.threshold);
  }
  return metric > (relative ? *best_ * (1.0 + config_.plateau.threshold) : *best_ + config_.plateau.threshold);
}

Result<void> LrScheduler::observe(const std::map<std::string, double>& metrics) {
  if (!has_state()) return {};
  const auto found = metrics.find(config_.plateau.metric);
  if (found == metrics.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : metrics) names.push_back("'" + name + "'");
    return fail(ExitCode::kConfig, fmt::format("schedule.plateau.metric: the evaluation has no metric '{}', only {}",
                                               config_.plateau.metric, fmt::join(names, ", ")));
  }
  const double metric = found->second;
  if (is_better(metric)) {
    best_ = metric;
    bad_evaluations_ = 0;
  } else {
    ++bad_evaluations_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_evaluations_ = 0;
  }
  if (bad_evaluations_ > config_.plateau.patience) {
    ++reductions_;
    cooldown_left_ = config_.plateau.cooldown;
    bad_evaluations_ = 0;
  }
  return {};
}

double LrScheduler::reduced(double lr) const {
  for (int64_t i = 0; i < reductions_; ++i) {
    const double next = std::max(lr * config_.plateau.factor, config_.plateau.min_lr);
    if (lr - next <= config_.plateau.eps) break;
    lr = next;
  }
  return lr;
}

nlohmann::json LrScheduler::values() const {
  nlohmann::json out = {
      {"bad_evaluations", bad_evaluations_}, {"cooldown_left", cooldown_left_}, {"reductions", reductions_}};
  if (best_) out["best"] = *best_;
  return out;
}

Result<void> LrScheduler::restored(const nlohmann::json& values) {
  bad_evaluations_ = values.value("bad_evaluations", int64_t{0});
  cooldown_left_ = values.value("cooldown_left", int64_t{0});
  reductions_ = values.value("reductions", int64_t{0});
  best_ = values.contains("best") ? std::optional<double>(values["best"].get<double>()) : std::nullopt;
  return {};
}

}  // namespace oarlock
