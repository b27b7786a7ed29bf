// The learning rate over the run: warm-up, schedule, and reductions on a plateau, as in torch/optim/lr_scheduler.py.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/optimization.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {

// The progress of the run before a step.
struct RunProgress {
  int64_t step = 0;         // optimizer steps completed
  int64_t epoch = 0;        // epochs completed
  int64_t total_steps = 1;  // of the whole run
  int64_t total_epochs = 1;
};

// Computes the learning rate of a group as lr times warm-up times schedule:
//
// Warm-up, with W warmup_steps, before step W (steps are counted from 0), then 1:
//   linear_lr    f + (1 - f) * step / W, with start factor f                 LinearLR
//   sedd         (step + 1) / W                                              lr * min(step / W, 1) of SEDD, from 1
// The schedule is a closed-form function of t intervals, until T = schedule.length (default: the end of the run):
//   step         gamma ^ floor(t / step_size)                               StepLR
//   multistep    gamma ^ (milestones at or before t)                        MultiStepLR
//   exponential  gamma ^ t                                                  ExponentialLR
//   linear       1 + (min_ratio - 1) * min(t, T) / T                        LinearLR
//   cosine       r + (1 - r) * (1 + cos(pi * min(t, T) / T)) / 2            CosineAnnealingLR, eta_min = r * lr
//   onecycle     rise over the first pct_start of T, then fall              OneCycleLR, max_lr = lr
//   plateau      one reduction per plateau of the metric                    ReduceLROnPlateau
// With interval step, t = step - W: the schedule begins after the warm-up, as in SequentialLR, and is 1 before. With
// interval epoch, t = epoch, and the warm-up is multiplied on top, as in ChainedScheduler.
//
// Only plateau has state, which is a checkpoint section. All other schedules depend on the progress alone, so that a
// resumed run continues exactly.
class LrScheduler final : public Stateful {
 public:
  explicit LrScheduler(const ScheduleConfig& config) : config_(config) {}

  // Replaces the configuration, except for its kind. The state is kept.
  void set_config(const ScheduleConfig& config) { config_ = config; }

  // Called before every step.
  void set_progress(const RunProgress& progress) { progress_ = progress; }

  // Sets the learning rates, and the momentum if the schedule changes it, of the next step.
  void apply(Optimizer& optimizer) const;

  // The learning rate of the next step for a group whose configured one is `lr`.
  double learning_rate(double lr) const;

  // The momentum of the next step if the schedule changes it: onecycle moves it from max_momentum down to base_momentum
  // while the learning rate rises, and back while it falls (OneCycleLR, cycle_momentum).
  std::optional<double> momentum() const;

  // Called after an evaluation, on all ranks with bitwise equal metrics. plateau: fails with kConfig if its metric is
  // missing; NaN is not an improvement. Other schedules ignore the call.
  Result<void> observe(const std::map<std::string, double>& metrics);

  // Whether checkpoints must contain the state.
  bool has_state() const { return config_.kind == ScheduleKind::kPlateau; }

  std::string_view section() const override { return "plateau"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  bool is_better(double metric) const;
  double reduced(double lr) const;

  ScheduleConfig config_;
  RunProgress progress_;
  std::optional<double> best_;
  int64_t bad_evaluations_ = 0;
  int64_t cooldown_left_ = 0;
  int64_t reductions_ = 0;
};

}  // namespace oarlock
