#include "trainer/config/optimization.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "trainer/config/limits.h"
#include "trainer/config/name_pattern.h"

namespace oarlock {
namespace {

constexpr double kMaxLossScale = 1e38;  // fits a float
constexpr double kMaxGrowthFactor = 1e6;

constexpr Limits kFraction = {.low = 0, .high = 1};

// ---- optimizer -----------------------------------------------------------------------------------------------------

void describe_group(ParameterGroupConfig& group, Fields& fields) {
  fields.field("match", group.match,
               "regular expression (ECMAScript, without back-references) that is searched for in the parameter names");
  fields.choice<GroupPreset>("preset", group.preset,
                             {{"none", GroupPreset::kNone}, {"no_decay", GroupPreset::kNoDecay}},
                             "replaces match: no_decay selects biases and the weights of normalization layers (at most "
                             "one dimension), with a weight_decay of 0");
  fields.field("lr", group.lr, at_least(0), "learning rate; replaces optimizer.lr");
  fields.field("lr_scale", group.lr_scale, at_least(0), "factor on the learning rate");
  if (group.preset == GroupPreset::kNoDecay && !group.weight_decay) group.weight_decay = 0;
  fields.field("weight_decay", group.weight_decay, at_least(0), "replaces optimizer.weight_decay");
  const bool has_preset = group.preset != GroupPreset::kNone;
  if (group.match.empty() != has_preset) {
    fields.problem("match", "a group has either 'match' or 'preset: no_decay'");
  }
  if (const Result<NamePattern> pattern = NamePattern::parse(group.match); !pattern) {
    fields.problem("match", pattern.error().message);
  }
}

// ---- schedule ------------------------------------------------------------------------------------------------------

using Kind = ScheduleKind;

void describe_plateau(PlateauConfig& config, Fields& fields) {
  fields.field("metric", config.metric, "one of the metrics of the task's evaluation");
  fields.choice<MetricMode>("mode", config.mode, {{"min", MetricMode::kMin}, {"max", MetricMode::kMax}},
                            "whether lower or higher values of the metric are better");
  fields.field("factor", config.factor, from_below(0, 1), "factor on the learning rate at each reduction");
  fields.field("patience", config.patience, from_to(0, kMaxSteps),
               "evaluations without improvement before a reduction");
  fields.field("threshold", config.threshold, at_least(0),
               "changes that are smaller than this do not count as an improvement");
  fields.choice<ThresholdMode>("threshold_mode", config.threshold_mode,
                               {{"rel", ThresholdMode::kRelative}, {"abs", ThresholdMode::kAbsolute}},
                               "whether the threshold is a fraction of the best value or an absolute change");
  fields.field("cooldown", config.cooldown, from_to(0, kMaxSteps),
               "number of evaluations after a reduction that are ignored");
  fields.field("min_lr", config.min_lr, at_least(0), "lower bound of the learning rate");
  fields.field("eps", config.eps, at_least(0), "changes of the learning rate that are smaller than this are skipped");
}

void only_for(Fields& fields, Kind kind, std::string_view key, std::initializer_list<Kind> kinds,
              std::string_view why_not) {
  fields.only_if(key, std::find(kinds.begin(), kinds.end(), kind) != kinds.end(), why_not);
}

void check_kind(const ScheduleConfig& config, Fields& fields) {
  const Kind kind = config.kind;
  only_for(fields, kind, "length", {Kind::kLinear, Kind::kCosine, Kind::kOneCycle},
           "belongs to the schedules linear, cosine and onecycle");
  only_for(fields, kind, "step_size", {Kind::kStep}, "belongs to the schedule step");
  only_for(fields, kind, "milestones", {Kind::kMultiStep}, "belongs to the schedule multistep");
  only_for(fields, kind, "gamma", {Kind::kStep, Kind::kMultiStep, Kind::kExponential},
           "belongs to the schedules step, multistep and exponential");
  only_for(fields, kind, "min_ratio", {Kind::kLinear, Kind::kCosine}, "belongs to the schedules linear and cosine");
  for (const char* key :
       {"pct_start", "div_factor", "final_div_factor", "anneal", "cycle_momentum", "base_momentum", "max_momentum"}) {
    only_for(fields, kind, key, {Kind::kOneCycle}, "belongs to the schedule onecycle");
  }
  only_for(fields, kind, "plateau", {Kind::kPlateau}, "belongs to the schedule plateau");
  if (kind == Kind::kMultiStep && config.milestones.empty()) {
    fields.problem("milestones", "is required by the schedule multistep");
  }
  if (!std::is_sorted(config.milestones.begin(), config.milestones.end())) {
    fields.problem("milestones", "must be in ascending order");
  }
}

}  // namespace

double default_weight_decay(OptimizerKind kind) { return kind == OptimizerKind::kAdamW ? 0.01 : 0; }

void describe(OptimizerConfig& config, Fields& fields) {
  fields.choice<OptimizerKind>(
      "name", config.kind,
      {{"adamw", OptimizerKind::kAdamW}, {"adam", OptimizerKind::kAdam}, {"sgd", OptimizerKind::kSgd}},
      "the optimizer");
  const bool sgd = config.kind == OptimizerKind::kSgd;
  fields.field("lr", config.lr, above(0), "peak learning rate of the schedule, before scaling");
  if (!config.weight_decay) config.weight_decay = default_weight_decay(config.kind);
  fields.field("weight_decay", config.weight_decay, at_least(0),
               "adamw: decoupled weight decay; adam, sgd: L2 penalty, with default 0");
  fields.field("momentum", config.momentum, from_below(0, 1), "sgd: momentum factor");
  fields.field("dampening", config.dampening, from_below(0, 1), "sgd: dampening of the momentum");
  fields.field("nesterov", config.nesterov, "sgd: Nesterov momentum");
  fields.field("betas", config.betas, from_below(0, 1), "adam, adamw: decay rates of the two moments");
  fields.field("eps", config.eps, above(0), "adam, adamw: added to the denominator");
  fields.field("amsgrad", config.amsgrad, "adam, adamw: divide by the largest second moment so far");
  fields.field("maximize", config.maximize, "maximize the loss instead of minimizing it");
  fields.list<ParameterGroupConfig>("groups", config.groups, describe_group,
                                    "parameters with their own hyperparameters; the first matching group applies");
  if (config.betas.size() != 2) fields.problem("betas", "expected two numbers in [0, 1)");
  for (const char* key : {"momentum", "dampening", "nesterov"}) {
    fields.only_if(key, sgd, "belongs to the optimizer sgd; this one is adam or adamw");
  }
  for (const char* key : {"betas", "eps", "amsgrad"}) {
    fields.only_if(key, !sgd, "belongs to the optimizers adam and adamw; this one is sgd");
  }
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    fields.problem("nesterov", "needs a momentum above 0 and no dampening");
  }
}

void describe(ScheduleConfig& config, Fields& fields) {
  fields.choice<Kind>("name", config.kind,
                      {{"constant", Kind::kConstant},
                       {"step", Kind::kStep},
                       {"multistep", Kind::kMultiStep},
                       {"exponential", Kind::kExponential},
                       {"linear", Kind::kLinear},
                       {"cosine", Kind::kCosine},
                       {"onecycle", Kind::kOneCycle},
                       {"plateau", Kind::kPlateau}},
                      "the learning-rate schedule after the warm-up");
  fields.choice<ScheduleInterval>("interval", config.interval,
                                  {{"step", ScheduleInterval::kStep}, {"epoch", ScheduleInterval::kEpoch}},
                                  "unit of the schedule: optimizer steps after the warm-up, or epochs");
  fields.field("length", config.length, from_to(1, kMaxSteps),
               "linear, cosine, onecycle: intervals until the final learning rate; default: to the end of the run");
  fields.field("step_size", config.step_size, from_to(1, kMaxSteps), "step: intervals between two reductions");
  fields.field("milestones", config.milestones, from_to(1, kMaxSteps),
               "multistep: intervals at which the learning rate is reduced");
  fields.field("gamma", config.gamma, above_to(0, 1),
               "step, multistep, exponential: factor on the learning rate at each reduction");
  fields.field("min_ratio", config.min_ratio, kFraction, "linear, cosine: the final learning rate as a fraction of lr");
  fields.field("pct_start", config.pct_start, kFraction,
               "onecycle: fraction of the cycle in which the learning rate rises to lr");
  fields.field("div_factor", config.div_factor, at_least(1), "onecycle: the initial learning rate is lr / div_factor");
  fields.field("final_div_factor", config.final_div_factor, at_least(1),
               "onecycle: the final learning rate is the initial one / final_div_factor");
  fields.choice<Anneal>("anneal", config.anneal, {{"cos", Anneal::kCosine}, {"linear", Anneal::kLinear}},
                        "onecycle: the shape of rise and fall");
  fields.field("cycle_momentum", config.cycle_momentum,
               "onecycle: SGD's momentum or Adam's first beta moves opposite to the learning rate");
  fields.field("base_momentum", config.base_momentum, from_below(0, 1),
               "onecycle: the momentum at the peak of the learning rate");
  fields.field("max_momentum", config.max_momentum, from_below(0, 1),
               "onecycle: the momentum at both ends of the cycle");
  fields.section(
      "plateau", [&](Fields& inner) { describe_plateau(config.plateau, inner); },
      "plateau: the learning rate is reduced when a metric of the evaluation stops improving");
  fields.field("warmup_steps", config.warmup_steps, from_to(0, kMaxSteps), "optimizer steps of a linear rise to lr");
  fields.choice<WarmupForm>("warmup_form", config.warmup_form,
                            {{"linear_lr", WarmupForm::kLinearLr}, {"sedd", WarmupForm::kSedd}},
                            "factor on lr in step s, from 1, of W warm-up steps: PyTorch's LinearLR, which is 1 from "
                            "step W + 1 on, or SEDD's min(s / W, 1)");
  fields.field("warmup_start_factor", config.warmup_start_factor, above_to(0, 1),
               "linear_lr: fraction of lr in the first step of the warm-up; default: 1 / warmup_steps");
  fields.only_if("warmup_start_factor", config.warmup_form == WarmupForm::kLinearLr,
                 "belongs to the warmup_form linear_lr; sedd starts at 1 / warmup_steps");
  check_kind(config, fields);
}

void describe(ScalingConfig& config, Fields& fields) {
  const Names<ScalingRule> rules = {
      {"none", ScalingRule::kNone}, {"linear", ScalingRule::kLinear}, {"sqrt", ScalingRule::kSqrt}};
  fields.choice<ScalingRule>("lr", config.lr, rules, "how learning rates scale with the samples per step");
  fields.choice<ScalingRule>("warmup", config.warmup, rules,
                             "how schedule.warmup_steps scales with the samples per step");
  fields.field("reference_batch", config.reference_batch, from_to(1, kMaxSamples),
               "samples per optimizer step, of all ranks and accumulated passes, for which lr and warm-up were chosen; "
               "default: those of reference_world ranks");
  fields.field("reference_world", config.reference_world, from_to(1, kMaxRanks),
               "with batch.per: device: number of ranks for which lr and warm-up were chosen");
  fields.field("cap", config.cap, at_least(1), "upper bound of the factors on learning rates and warm-up");
  if (config.reference_batch && config.reference_world != 1) {
    fields.problem("reference_world", "the reference is given twice; remove it or reference_batch");
  }
}

void describe(GradientConfig& config, Fields& fields) {
  fields.field("accumulation_steps", config.accumulation_steps, from_to(1, kMaxAccumulationSteps),
               "forward and backward passes per optimizer step");
  fields.field("clip_norm", config.clip_norm, above(0), "maximum norm of all gradients, taken as one vector");
  fields.choice<NormType>("norm_type", config.norm_type, {{"2", NormType::kL2}, {"inf", NormType::kInfinity}},
                          "the norm of clip_norm: Euclidean, or the largest absolute value");
  fields.field("clip_value", config.clip_value, above(0), "maximum absolute value of each gradient element");
  if (config.clip_norm && config.clip_value) {
    fields.problem("clip_value", "gradients are clipped twice; remove clip_norm or clip_value");
  }
}

void describe(AmpConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "compute matrix products and convolutions in lower precision (autocast)");
  fields.choice<AmpType>("dtype", config.dtype, {{"bf16", AmpType::kBf16}, {"fp16", AmpType::kFp16}},
                         "the lower precision; fp16 scales the loss so that small gradients do not underflow");
  fields.field("init_scale", config.init_scale, above_to(0, kMaxLossScale), "fp16: the initial loss scale");
  fields.field("growth_factor", config.growth_factor, above_to(1, kMaxGrowthFactor),
               "fp16: factor on the loss scale after growth_interval steps without an overflow");
  fields.field("backoff_factor", config.backoff_factor,
               Limits{.low = 0, .high = 1, .low_is_open = true, .high_is_open = true},
               "fp16: factor on the loss scale after an overflow; the step with the overflow is skipped");
  fields.field("growth_interval", config.growth_interval, from_to(1, 2147483647),
               "fp16: consecutive steps without an overflow after which the loss scale grows");
  for (const char* key : {"init_scale", "growth_factor", "backoff_factor", "growth_interval"}) {
    fields.only_if(key, config.dtype == AmpType::kFp16, "belongs to amp.dtype: fp16; bf16 needs no scaling");
  }
}

void describe(EmaConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "maintain an exponential moving average of the weights");
  fields.field("decay", config.decay, Limits{.low = 0, .high = 1, .high_is_open = true},
               "weight of the previous average in each step");
  fields.field("warmup", config.warmup, "a smaller decay at the start: min(decay, (1 + n) / (10 + n)) at update n");
  fields.field("buffers", config.buffers,
               "average the buffers (running statistics), too; false: use the model's buffers");
  fields.field("evaluate", config.evaluate, "evaluate the averaged weights instead of the trained ones");
}

void describe(NonfiniteConfig& config, Fields& fields) {
  fields.choice<NonfiniteLoss>("loss", config.loss, {{"stop", NonfiniteLoss::kStop}, {"skip", NonfiniteLoss::kSkip}},
                               "policy for a loss that is not finite on any rank: stop the run when the loss is logged "
                               "or the weights would be saved, or skip the step on all ranks");
  fields.choice<NonfiniteGradient>(
      "gradient", config.gradient,
      {{"ignore", NonfiniteGradient::kIgnore}, {"skip", NonfiniteGradient::kSkip}, {"stop", NonfiniteGradient::kStop}},
      "policy for a gradient that is not finite: ignore it, skip the step on all ranks, or skip it and stop the run "
      "when the loss is logged or the weights would be saved");
  fields.field("max_consecutive", config.max_consecutive, from_to(1, kMaxSteps),
               "consecutive skipped steps after which the run fails; checked when the loss is logged");
  fields.field("max_share", config.max_share, above_to(0, 1),
               "fraction of the run's steps that may be skipped: the run fails if it is exceeded when the run ends, or "
               "when the loss is logged after max_consecutive steps or more");
}

}  // namespace oarlock
