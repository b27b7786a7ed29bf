#include "trainer/config/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace oarlock {
namespace {

double scaling_factor(ScalingRule rule, double growth, const std::optional<double>& cap) {
  double factor = 1;
  if (rule == ScalingRule::kLinear) factor = growth;
  if (rule == ScalingRule::kSqrt) factor = std::sqrt(growth);
  return cap ? std::min(factor, *cap) : factor;
}

}  // namespace

Result<BatchPlan> plan_batches(const TrainerConfig& config, int world_size, std::optional<int64_t> samples) {
  const int64_t accumulation = config.gradient.accumulation_steps;
  const ScalingConfig& scaling = config.scaling;
  BatchPlan plan;
  plan.micro_batch = config.batch.size;
  int64_t reference = config.batch.size * accumulation * scaling.reference_world;
  if (config.batch.per == BatchPer::kGlobal) {
    const int64_t parts = world_size * accumulation;
    if (config.batch.size % parts != 0) {
      return fail(ExitCode::kConfig,
                  fmt::format("batch: a global batch of {} is not divisible by {} ranks times {} accumulation steps; "
                              "choose a multiple of {}",
                              config.batch.size, world_size, accumulation, parts));
    }
    plan.micro_batch = config.batch.size / parts;
    if ((scaling.lr != ScalingRule::kNone || scaling.warmup != ScalingRule::kNone) && !scaling.reference_batch) {
      return fail(ExitCode::kConfig,
                  "scaling: with batch.per: global the batch is the same for every number of ranks; set "
                  "scaling.reference_batch, or remove the rule");
    }
  }
  plan.per_rank = plan.micro_batch * accumulation;
  if (samples && *samples > 0 && !config.batch.drop_last) {
    const int64_t per_rank_samples = (*samples + world_size - 1) / world_size;  // the sampler pads the last ones
    plan.micro_batch = std::min(plan.micro_batch, per_rank_samples);
    plan.per_rank = std::min(plan.per_rank, per_rank_samples);
    reference = std::min(reference, *samples);
  }
  plan.effective_batch = plan.per_rank * world_size;
  reference = scaling.reference_batch.value_or(reference);
  const double growth = static_cast<double>(plan.effective_batch) / static_cast<double>(reference);
  plan.lr_factor = scaling_factor(scaling.lr, growth, scaling.cap);
  plan.warmup_steps = std::llround(static_cast<double>(config.schedule.warmup_steps) *
                                   scaling_factor(scaling.warmup, growth, scaling.cap));
  return plan;
}

TrainerConfig apply_plan(TrainerConfig config, const BatchPlan& plan) {
  config.optimizer.lr *= plan.lr_factor;
  for (ParameterGroupConfig& group : config.optimizer.groups) {
    if (group.lr) *group.lr *= plan.lr_factor;
  }
  config.schedule.warmup_steps = plan.warmup_steps;
  return config;
}

}  // namespace oarlock
