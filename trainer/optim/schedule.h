// The learning rate as a function of the step. Pure.
#pragma once

#include <cstdint>

#include "trainer/config/schedule.h"

namespace oarlock {

// Of the step that is about to be taken, counted from 0. After the warm-up the cosine goes from lr to 0 at
// target_steps: lr * (1 + cos(pi * (step - warmup) / (target - warmup))) / 2, as
// torch.optim.lr_scheduler.CosineAnnealingLR with T_max = target - warmup and eta_min = 0.
double learning_rate(const ScheduleConfig& config, double lr, int64_t step, int64_t target_steps);

}  // namespace oarlock
