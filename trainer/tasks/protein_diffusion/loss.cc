#include "trainer/tasks/protein_diffusion/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace oarlock::protein_diffusion {
namespace {

constexpr double kMinTime = 1e-3;
constexpr double kMinNoiseFactor = 0.1;
constexpr double kExponentialRate = 3;

double progress_of(const CurriculumConfig& config, int64_t step) {
  return static_cast<double>(step) / static_cast<double>(config.preschool_time);
}

// The preference for times with little noise, from 1 at the first step to 0 at preschool_time.
double time_bias(const CurriculumConfig& config, double progress) {
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

at::Tensor position_losses(const LogScore& log_score, const Graph& graph, const NoiseConfig& noise,
                           const NoiseDraw& draw) {
  const at::Tensor sigma = total_noise(noise, draw.time);
  const at::Tensor x = graph.sample_transition(draw.tokens, sigma * draw.noise_factor, draw.move, draw.replacement);
  const at::Tensor entropy = graph.score_entropy(log_score(x, sigma), sigma, x, draw.tokens);
  return entropy * noise_rate(noise, draw.time).unsqueeze(-1);
}

double curriculum_noise_factor(const CurriculumConfig& config, int64_t step) {
  if (!config.enabled || config.probabilistic) return 1;
  const double progress = progress_of(config, step);
  double reached = std::min(progress, 1.0);
  if (config.ramp == CurriculumRamp::kExponential) reached = 1 - std::exp(-kExponentialRate * progress);
  if (config.ramp == CurriculumRamp::kCosine) reached = (1 - std::cos(std::numbers::pi * reached)) / 2;
  return kMinNoiseFactor + (1 - kMinNoiseFactor) * reached;
}

at::Tensor curriculum_times(const CurriculumConfig& config, const at::Tensor& uniform, int64_t step) {
  if (!config.enabled || !config.probabilistic || step >= config.preschool_time) return sample_times(uniform);
  const double bias = time_bias(config, progress_of(config, step));
  return at::pow(uniform, 1 + bias * config.bias_strength) * (1 - 2 * kMinTime) + kMinTime;
}

at::Tensor sample_times(const at::Tensor& uniform) { return uniform * (1 - kMinTime) + kMinTime; }

}  // namespace oarlock::protein_diffusion
