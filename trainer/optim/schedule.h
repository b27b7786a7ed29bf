// The learning rate as a pure function of how far the run is, so that a resumed run goes on exactly. The closed forms
// of torch/optim/lr_scheduler.py; what depends on the evaluations is in plateau.h. LibTorch-free.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/config/schedule.h"

namespace oarlock {

// Of the step that is about to be taken.
struct ScheduleTime {
  int64_t step = 0;         // optimizer steps done
  int64_t epoch = 0;        // epochs done
  int64_t total_steps = 1;  // of the whole run
  int64_t total_epochs = 1;
};

// `lr` times the warm-up times the schedule.
//
// Warm-up: with W warmup_steps and start factor f, LinearLR: f + (1 - f) * step / W before step W, then 1.
// Schedule: a function of t intervals, until T = schedule.length (default: the end of the run):
//   step         gamma ^ floor(t / step_size)                               StepLR
//   multistep    gamma ^ (milestones at or before t)                        MultiStepLR
//   exponential  gamma ^ t                                                  ExponentialLR
//   linear       1 + (min_ratio - 1) * min(t, T) / T                        LinearLR
//   cosine       r + (1 - r) * (1 + cos(pi * min(t, T) / T)) / 2            CosineAnnealingLR, eta_min = r * lr
//   onecycle     rise over the first pct_start of T, then fall              OneCycleLR, max_lr = lr
// With interval step, t = step - W: the schedule begins after the warm-up, as by SequentialLR, and is 1 before. With
// interval epoch, t = epoch, and the warm-up comes on top, as by ChainedScheduler.
double learning_rate(const ScheduleConfig& config, double lr, const ScheduleTime& time);

// The momentum of the step that is about to be taken, where the schedule moves it: by onecycle from max_momentum down
// to base_momentum while the rate rises, and back while it falls (OneCycleLR, cycle_momentum).
std::optional<double> cycled_momentum(const ScheduleConfig& config, const ScheduleTime& time);

double warmup_factor(const ScheduleConfig& config, int64_t step);

}  // namespace oarlock
