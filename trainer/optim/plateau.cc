#include "trainer/optim/plateau.h"

#include <algorithm>
#include <cmath>

namespace oarlock {

bool Plateau::is_better(double metric) const {
  if (!best_) return std::isfinite(metric);
  const bool relative = config_.threshold_mode == ThresholdMode::kRelative;
  if (config_.mode == MetricMode::kMin) {
    return metric < (relative ? *best_ * (1.0 - config_.threshold) : *best_ - config_.threshold);
  }
  return metric > (relative ? *best_ * (1.0 + config_.threshold) : *best_ + config_.threshold);
}

void Plateau::observe(double metric) {
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
  if (bad_evaluations_ > config_.patience) {
    ++reductions_;
    cooldown_left_ = config_.cooldown;
    bad_evaluations_ = 0;
  }
}

double Plateau::rate(double lr) const {
  for (int64_t i = 0; i < reductions_; ++i) {
    const double next = std::max(lr * config_.factor, config_.min_lr);
    if (lr - next <= config_.eps) break;
    lr = next;
  }
  return lr;
}

nlohmann::json Plateau::values() const {
  nlohmann::json out = {
      {"bad_evaluations", bad_evaluations_}, {"cooldown_left", cooldown_left_}, {"reductions", reductions_}};
  if (best_) out["best"] = *best_;
  return out;
}

Result<void> Plateau::restored(const nlohmann::json& values) {
  bad_evaluations_ = values.value("bad_evaluations", int64_t{0});
  cooldown_left_ = values.value("cooldown_left", int64_t{0});
  reductions_ = values.value("reductions", int64_t{0});
  best_ = values.contains("best") ? std::optional<double>(values["best"].get<double>()) : std::nullopt;
  return {};
}

}  // namespace oarlock
