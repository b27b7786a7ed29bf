#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace oarlock {

double learning_rate(const ScheduleConfig& config, double lr, int64_t step, int64_t target_steps) {
  if (step < config.warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  if (config.kind == ScheduleKind::kConstant) return lr;
  const int64_t length = std::max<int64_t>(target_steps - config.warmup_steps, 1);
  const double progress = std::min(1.0, static_cast<double>(step - config.warmup_steps) / static_cast<double>(length));
  return lr * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
}

}  // namespace oarlock
