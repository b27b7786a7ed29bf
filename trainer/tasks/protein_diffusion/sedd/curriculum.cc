#include "trainer/tasks/protein_diffusion/sedd/curriculum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace oarlock {
namespace {

constexpr double kLeastTime = 1e-3;
constexpr double kLeastNoise = 0.1;
constexpr double kExponentialRate = 3;

double progress_of(const CurriculumConfig& config, int64_t step) {
  return static_cast<double>(step) / static_cast<double>(config.preschool_time);
}

double bias_towards_little_noise(const CurriculumConfig& config, double progress) {
  switch (config.ramp) {
    case CurriculumRamp::kExponential:
      return std::exp(-config.bias_strength * progress);
    case CurriculumRamp::kCosine:
      return (1 + std::cos(std::numbers::pi * progress)) / 2;
    case CurriculumRamp::kLinear:
      break;
  }
  return 1 - progress;
}

}  // namespace

void describe(CurriculumConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "begin with little noise");
  fields.field("preschool_time", config.preschool_time, at_least(1), "steps until the noise is what it is without");
  fields.choice<CurriculumRamp>("difficulty_ramp", config.ramp,
                                {{"linear", CurriculumRamp::kLinear},
                                 {"exponential", CurriculumRamp::kExponential},
                                 {"cosine", CurriculumRamp::kCosine}},
                                "how noise grows over these steps");
  fields.field("probabilistic", config.probabilistic,
               "draw times with little noise more often, instead of reducing the noise of every time");
  fields.field("bias_strength", config.bias_strength, above(0), "probabilistic: times are u^(1 + strength) at first");
  fields.only_where("bias_strength", config.probabilistic, "needs curriculum.probabilistic: true");
}

double noise_factor(const CurriculumConfig& config, int64_t step) {
  if (!config.enabled || config.probabilistic) return 1;
  const double progress = progress_of(config, step);
  double reached = std::min(progress, 1.0);
  if (config.ramp == CurriculumRamp::kExponential) reached = 1 - std::exp(-kExponentialRate * progress);
  if (config.ramp == CurriculumRamp::kCosine) reached = (1 - std::cos(std::numbers::pi * reached)) / 2;
  return kLeastNoise + (1 - kLeastNoise) * reached;
}

at::Tensor times_of_step(const CurriculumConfig& config, const at::Tensor& uniform, int64_t step) {
  if (!config.enabled || !config.probabilistic || step >= config.preschool_time) return times_of(uniform);
  const double bias = bias_towards_little_noise(config, progress_of(config, step));
  return at::pow(uniform, 1 + bias * config.bias_strength) * (1 - 2 * kLeastTime) + kLeastTime;
}

at::Tensor times_of(const at::Tensor& uniform) { return uniform * (1 - kLeastTime) + kLeastTime; }

}  // namespace oarlock
