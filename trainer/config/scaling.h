// The section "scaling": how learning rate and warm-up follow the number of samples per step.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class ScalingRule { kNone, kLinear, kSqrt };

struct ScalingConfig {
  ScalingRule lr = ScalingRule::kNone;
  ScalingRule warmup = ScalingRule::kNone;
  std::optional<int64_t> reference_batch;  // samples per step that lr and warm-up were chosen for
  int64_t reference_world = 1;             // or the ranks, where batch.per is device
  std::optional<double> cap;               // of either factor
};

void describe(ScalingConfig& config, Fields& fields);

}  // namespace oarlock
