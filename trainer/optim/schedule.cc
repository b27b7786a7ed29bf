#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace oarlock {
namespace {

double cosine(double from, double to, double share) {
  return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * share));
}

struct Cycle {
  double first, top, last;
};

// Rise to the top over the first pct_start of the length, then fall.
double one_cycle(const ScheduleConfig& config, const Cycle& cycle, double t, double length) {
  const auto anneal = [&](double from, double to, double share) {
    return config.anneal == Anneal::kCosine ? cosine(from, to, share) : from + (to - from) * share;
  };
  const double top = config.pct_start * length - 1.0;
  const double end = length - 1.0;
  if (t <= top) return top > 0 ? anneal(cycle.first, cycle.top, t / top) : cycle.top;
  return end > top ? anneal(cycle.top, cycle.last, std::min((t - top) / (end - top), 1.0)) : cycle.last;
}

double factor(const ScheduleConfig& config, int64_t t, int64_t length) {
  const auto gamma_to = [&](int64_t power) { return std::pow(config.gamma, static_cast<double>(power)); };
  const double share = std::min(1.0, static_cast<double>(t) / static_cast<double>(length));
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
      return 1.0 + (config.min_ratio - 1.0) * share;
    case ScheduleKind::kCosine:
      return cosine(1.0, config.min_ratio, share);
    case ScheduleKind::kOneCycle:
      return one_cycle(config, {1.0 / config.div_factor, 1.0, 1.0 / config.div_factor / config.final_div_factor},
                       static_cast<double>(t), static_cast<double>(length));
  }
  return 1;
}

// In intervals of the schedule; before its beginning the position is negative.
struct Progress {
  int64_t t, length;
};

Progress progress(const ScheduleConfig& config, const ScheduleTime& time) {
  const bool by_epoch = config.interval == ScheduleInterval::kEpoch;
  const int64_t rest = by_epoch ? time.total_epochs : time.total_steps - config.warmup_steps;
  return {by_epoch ? time.epoch : time.step - config.warmup_steps, std::max<int64_t>(config.length.value_or(rest), 1)};
}

}  // namespace

double warmup_factor(const ScheduleConfig& config, int64_t step) {
  if (step >= config.warmup_steps) return 1;
  const auto length = static_cast<double>(config.warmup_steps);
  const double first = config.warmup_start_factor.value_or(1.0 / length);
  return first + (1.0 - first) * static_cast<double>(step) / length;
}

double learning_rate(const ScheduleConfig& config, double lr, const ScheduleTime& time) {
  const double warmup = warmup_factor(config, time.step);
  const auto [t, length] = progress(config, time);
  return t < 0 ? lr * warmup : lr * warmup * factor(config, t, length);
}

std::optional<double> cycled_momentum(const ScheduleConfig& config, const ScheduleTime& time) {
  if (config.kind != ScheduleKind::kOneCycle || !config.cycle_momentum) return std::nullopt;
  const auto [t, length] = progress(config, time);
  return one_cycle(config, {config.max_momentum, config.base_momentum, config.max_momentum},
                   static_cast<double>(std::max<int64_t>(t, 0)), static_cast<double>(length));
}

}  // namespace oarlock
