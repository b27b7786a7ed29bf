// The section "gradient": what happens to gradients between backward and the optimizer.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class NormType { kL2, kInfinity };

struct GradientConfig {
  int64_t accumulation_steps = 1;   // forward and backward passes per optimizer step
  std::optional<double> clip_norm;  // of all gradients together
  NormType norm_type = NormType::kL2;
  std::optional<double> clip_value;  // of every element
};

void describe(GradientConfig& config, Fields& fields);

}  // namespace oarlock
