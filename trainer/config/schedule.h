// The section "schedule": the learning rate over the run, with the names of torch.optim.lr_scheduler.
#pragma once

#include "trainer/config/early_stopping.h"
#include "trainer/config/fields.h"

namespace oarlock {

enum class ScheduleKind { kConstant, kStep, kMultiStep, kExponential, kLinear, kCosine, kOneCycle, kPlateau };
enum class ScheduleInterval { kStep, kEpoch };
enum class Anneal { kCosine, kLinear };
enum class ThresholdMode { kRelative, kAbsolute };

struct PlateauConfig {
  std::string metric = "loss";  // of the evaluation
  MetricMode mode = MetricMode::kMin;
  double factor = 0.1;
  int64_t patience = 10;  // evaluations without improvement that are let pass
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;  // a smaller change of the rate is not made
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  ScheduleInterval interval = ScheduleInterval::kStep;
  std::optional<int64_t> length;              // linear, cosine, onecycle; default: to the end of the run
  int64_t step_size = 1;                      // step
  std::vector<int64_t> milestones;            // multistep
  double gamma = 0.1;                         // step, multistep, exponential
  double min_ratio = 0;                       // linear, cosine: the last rate, as a share of lr
  double pct_start = 0.3;                     // onecycle
  double div_factor = 25;                     // onecycle: lr / div_factor is the first rate
  double final_div_factor = 1e4;              // onecycle: the first rate / final_div_factor is the last
  Anneal anneal = Anneal::kCosine;            // onecycle
  bool cycle_momentum = true;                 // onecycle: SGD's momentum, Adam's betas[0]
  double base_momentum = 0.85;                // onecycle: where the rate is lr
  double max_momentum = 0.95;                 // onecycle: where the rate is least
  PlateauConfig plateau;                      // plateau
  int64_t warmup_steps = 0;                   // optimizer steps, whatever the interval
  std::optional<double> warmup_start_factor;  // share of lr in the first step; default: 1 / warmup_steps
};

void describe(ScheduleConfig& config, Fields& fields);

}  // namespace oarlock
