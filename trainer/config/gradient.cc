#include "trainer/config/gradient.h"

namespace oarlock {

void describe(GradientConfig& config, Fields& fields) {
  fields.field("accumulation_steps", config.accumulation_steps, at_least(1),
               "forward and backward passes whose gradients make one optimizer step");
  fields.field("clip_norm", config.clip_norm, above(0), "largest norm of all gradients together");
  fields.choice<NormType>("norm_type", config.norm_type, {{"2", NormType::kL2}, {"inf", NormType::kInfinity}},
                          "which norm clip_norm means: Euclidean, or the largest absolute value");
  fields.field("clip_value", config.clip_value, above(0), "largest absolute value of every gradient's element");
  if (config.clip_norm && config.clip_value) {
    fields.problem("clip_value", "gradients are clipped twice; remove clip_norm or clip_value");
  }
}

}  // namespace oarlock
