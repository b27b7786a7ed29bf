// The sections of the configuration that define one optimizer step: "optimizer", "schedule", "scaling", "gradient",
// "amp", "ema" and "nonfinite". Keys, defaults and semantics are those of torch.optim, torch.optim.lr_scheduler and
// torch.amp where these have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields/fields.h"
#include "trainer/config/evaluation.h"

namespace oarlock {

// ---- optimizer -----------------------------------------------------------------------------------------------------

enum class OptimizerKind { kAdamW, kAdam, kSgd };

// Parameters that are selected by their shape instead of their name. no_decay: those of at most one dimension, which
// are biases and the weights of normalization layers.
enum class GroupPreset { kNone, kNoDecay };

// Parameters with their own hyperparameters. A parameter belongs to the first group that it matches; the others form a
// group with the settings of the section.
struct ParameterGroupConfig {
  std::string match;  // regular expression (name_pattern.h) that is searched for in the name; exclusive with a preset
  GroupPreset preset = GroupPreset::kNone;
  std::optional<double> lr;            // replaces optimizer.lr
  double lr_scale = 1;                 // factor on the group's lr
  std::optional<double> weight_decay;  // replaces optimizer.weight_decay; 0 for the preset no_decay
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  std::optional<double> weight_decay;     // default: default_weight_decay()
  double momentum = 0;                    // sgd
  double dampening = 0;                   // sgd
  bool nesterov = false;                  // sgd
  std::vector<double> betas{0.9, 0.999};  // adam, adamw; two
  double eps = 1e-8;                      // adam, adamw
  bool amsgrad = false;                   // adam, adamw
  bool maximize = false;
  std::vector<ParameterGroupConfig> groups;
};

// PyTorch's: 0.01 for adamw, otherwise 0.
double default_weight_decay(OptimizerKind kind);

// ---- schedule and scaling ------------------------------------------------------------------------------------------

enum class ScheduleKind { kConstant, kStep, kMultiStep, kExponential, kLinear, kCosine, kOneCycle, kPlateau };
enum class ScheduleInterval { kStep, kEpoch };
enum class Anneal { kCosine, kLinear };
// The factor on the learning rate in optimizer step s, from 1, of W warm-up steps. kLinearLr: LinearLR, from the start
// factor in step 1 to 1 in step W + 1. kSedd: min(s / W, 1), which is 1 from step W on (SEDD's optimize_fn).
enum class WarmupForm { kLinearLr, kSedd };
enum class ThresholdMode { kRelative, kAbsolute };

// ReduceLROnPlateau.
struct PlateauConfig {
  std::string metric = "loss";  // of the evaluation
  MetricMode mode = MetricMode::kMin;
  double factor = 0.1;
  int64_t patience = 10;  // evaluations without improvement before a reduction
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRelative;
  int64_t cooldown = 0;  // evaluations
  double min_lr = 0;
  double eps = 1e-8;  // smaller changes of the learning rate are skipped
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  ScheduleInterval interval = ScheduleInterval::kStep;
  std::optional<int64_t> length;    // linear, cosine, onecycle: intervals; default: to the end of the run
  int64_t step_size = 1;            // step
  std::vector<int64_t> milestones;  // multistep
  double gamma = 0.1;               // step, multistep, exponential
  double min_ratio = 0;             // linear, cosine: the final learning rate as a fraction of lr
  double pct_start = 0.3;           // onecycle
  double div_factor = 25;           // onecycle: the initial learning rate is lr / div_factor
  double final_div_factor = 1e4;    // onecycle: the final one is the initial one / final_div_factor
  Anneal anneal = Anneal::kCosine;  // onecycle
  bool cycle_momentum = true;       // onecycle: SGD's momentum, Adam's betas[0]
  double base_momentum = 0.85;      // onecycle: at the peak of the learning rate
  double max_momentum = 0.95;       // onecycle: at both ends
  PlateauConfig plateau;            // plateau
  int64_t warmup_steps = 0;         // optimizer steps, whatever the interval
  WarmupForm warmup_form = WarmupForm::kLinearLr;
  std::optional<double> warmup_start_factor;  // linear_lr: fraction of lr in the first step; default: 1 / warmup_steps
};

enum class ScalingRule { kNone, kLinear, kSqrt };

// How the learning rate and the warm-up depend on the effective batch size (plan_batches() in config.h).
struct ScalingConfig {
  ScalingRule lr = ScalingRule::kNone;
  ScalingRule warmup = ScalingRule::kNone;
  std::optional<int64_t> reference_batch;  // samples per step for which lr and warm-up were chosen
  int64_t reference_world = 1;             // the same as a number of ranks, with batch.per: device
  std::optional<double> cap;               // upper bound of both factors
};

// ---- gradients, precision and averaging ----------------------------------------------------------------------------

enum class NormType { kL2, kInfinity };

struct GradientConfig {
  int64_t accumulation_steps = 1;   // forward and backward passes per optimizer step
  std::optional<double> clip_norm;  // of all gradients together
  NormType norm_type = NormType::kL2;
  std::optional<double> clip_value;  // of each element
};

enum class AmpType { kBf16, kFp16 };

struct AmpConfig {
  bool enabled = false;
  AmpType dtype = AmpType::kBf16;
  // The gradient scaler, which fp16 needs and bf16 does not.
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  bool scales() const { return enabled && dtype == AmpType::kFp16; }
};

struct EmaConfig {
  bool enabled = false;
  double decay = 0.9999;
  bool warmup = false;   // the decay of update n (from 1) is min(decay, (1 + n) / (10 + n))
  bool buffers = false;  // average floating-point buffers too; otherwise the model's own are used
  bool evaluate = true;  // evaluations use the averaged weights
};

enum class NonfiniteLoss { kStop, kSkip };
enum class NonfiniteGradient { kIgnore, kSkip, kStop };

// The reaction to a loss or a gradient that is NaN or infinite.
struct NonfiniteConfig {
  NonfiniteLoss loss = NonfiniteLoss::kStop;
  NonfiniteGradient gradient = NonfiniteGradient::kIgnore;
  int64_t max_consecutive = 100;  // the run ends after so many consecutive skipped steps
  double max_share = 0.5;         // the run ends if a larger fraction of its steps is skipped

  // Whether every step checks its gradients before the update.
  bool checks_gradients() const { return loss == NonfiniteLoss::kSkip || gradient != NonfiniteGradient::kIgnore; }
};

void describe(OptimizerConfig& config, Fields& fields);
void describe(ScheduleConfig& config, Fields& fields);
void describe(ScalingConfig& config, Fields& fields);
void describe(GradientConfig& config, Fields& fields);
void describe(AmpConfig& config, Fields& fields);
void describe(EmaConfig& config, Fields& fields);
void describe(NonfiniteConfig& config, Fields& fields);

}  // namespace oarlock
