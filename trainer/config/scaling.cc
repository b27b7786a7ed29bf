#include "trainer/config/scaling.h"

namespace oarlock {

void describe(ScalingConfig& config, Fields& fields) {
  const Names<ScalingRule> rules = {
      {"none", ScalingRule::kNone}, {"linear", ScalingRule::kLinear}, {"sqrt", ScalingRule::kSqrt}};
  fields.choice<ScalingRule>("lr", config.lr, rules, "how learning rates grow with the samples per step");
  fields.choice<ScalingRule>("warmup", config.warmup, rules, "how schedule.warmup_steps grows with them");
  fields.field("reference_batch", config.reference_batch, at_least(1),
               "samples per step, over ranks and accumulation, that lr and warm-up were chosen for; default: those of "
               "reference_world ranks");
  fields.field("reference_world", config.reference_world, at_least(1),
               "ranks that lr and warm-up were chosen for, where batch.per is device");
  fields.field("cap", config.cap, at_least(1), "no factor is larger");
  if (config.reference_batch && config.reference_world != 1) {
    fields.problem("reference_world", "the reference is given twice; remove it or reference_batch");
  }
}

}  // namespace oarlock
