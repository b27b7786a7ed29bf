#include "trainer/tasks/protein_diffusion/noise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <numbers>

namespace oarlock::protein_diffusion {

at::Tensor total_noise(const NoiseConfig& config, const at::Tensor& t) {
  switch (config.kind) {
    case NoiseKind::kLogLinear:
      return at::log1p(t * (config.eps - 1)).neg();
    case NoiseKind::kGeometric:
      return at::exp(t * std::log(config.sigma_max / config.sigma_min)) * config.sigma_min;
    case NoiseKind::kCosine:
      break;
  }
  const double half = (config.sigma_min - config.sigma_max) / 2;
  return (at::cos(t * std::numbers::pi) + 1) * half + config.sigma_max;
}

at::Tensor noise_rate(const NoiseConfig& config, const at::Tensor& t) {
  switch (config.kind) {
    case NoiseKind::kLogLinear:
      return at::reciprocal(t * (config.eps - 1) + 1) * (1 - config.eps);
    case NoiseKind::kGeometric:
      return total_noise(config, t) * std::log(config.sigma_max / config.sigma_min);
    case NoiseKind::kCosine:
      break;
  }
  const double amplitude = std::numbers::pi / 2 * (config.sigma_max - config.sigma_min);
  return at::sin(t * std::numbers::pi) * amplitude;
}

}  // namespace oarlock::protein_diffusion
