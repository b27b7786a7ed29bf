// Curriculum of the fork protein_lig_sedd: training begins with little noise. Sources: sample_transition_curriculum of
// its graph_lib.py (the guide's) and sample_timesteps_curriculum of its noise_lib.py (probabilistic).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/config/fields.h"

namespace oarlock {

enum class CurriculumRamp { kLinear, kExponential, kCosine };

// The section "curriculum".
struct CurriculumConfig {
  bool enabled = false;
  int64_t preschool_time = 10'000;  // steps
  CurriculumRamp ramp = CurriculumRamp::kLinear;
  bool probabilistic = false;
  double bias_strength = 2;  // probabilistic
};

void describe(CurriculumConfig& config, Fields& fields);

// By how much the noise that tokens see is reduced in step `step`, in [0.1, 1]; the model is told, and the loss
// weighted by, the noise that is not reduced, as in the fork. 1 where the curriculum is probabilistic or not enabled.
//   0.1 + 0.9 min(1, step / preschool_time);  exponential: 1 - e^(-3 ...);  cosine: (1 - cos(pi ...)) / 2
double noise_factor(const CurriculumConfig& config, int64_t step);

// Times of a step from numbers u, uniform in [0, 1): 1e-3 + (1 - 1e-3) u. Where the curriculum is probabilistic, until
// preschool_time: 1e-3 + (1 - 2e-3) u^(1 + bias * bias_strength), with a bias that falls from 1 to 0.
at::Tensor times_of_step(const CurriculumConfig& config, const at::Tensor& uniform, int64_t step);

// Without a curriculum. No time is below 1e-3: the loss has no finite variance down to 0.
at::Tensor times_of(const at::Tensor& uniform);

}  // namespace oarlock
