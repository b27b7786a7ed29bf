#include "trainer/tasks/protein_diffusion/sedd/noise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>

#include <cmath>
#include <numbers>

namespace oarlock {

void describe(NoiseConfig& config, Fields& fields) {
  fields.choice<NoiseKind>(
      "type", config.kind,
      {{"loglinear", NoiseKind::kLogLinear}, {"geometric", NoiseKind::kGeometric}, {"cosine", NoiseKind::kCosine}},
      "how noise grows with time");
  const bool log_linear = config.kind == NoiseKind::kLogLinear;
  if (!fields.given("sigma_max") && config.kind == NoiseKind::kCosine) config.sigma_max = 0.8;
  fields.field("eps", config.eps, {.low = 0, .high = 1, .low_is_open = true, .high_is_open = true},
               "loglinear: a token is still itself at time 1 with this probability");
  fields.field("sigma_min", config.sigma_min, above(0), "geometric, cosine: noise at time 0");
  fields.field("sigma_max", config.sigma_max, above(0), "geometric, cosine: noise at time 1; 20, cosine: 0.8");
  fields.only_where("eps", log_linear, "belongs to the noise loglinear");
  fields.only_where("sigma_min", !log_linear, "belongs to the noises geometric and cosine");
  fields.only_where("sigma_max", !log_linear, "belongs to the noises geometric and cosine");
  if (!log_linear && config.sigma_min >= config.sigma_max) fields.problem("sigma_min", "must be below sigma_max");
}

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

}  // namespace oarlock
