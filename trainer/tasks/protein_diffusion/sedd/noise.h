// Noise schedules: how much noise sigma(t) a sequence has seen at time t in [0, 1], and how fast it grows.
// Sources: noise_lib.py of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion (Lou, Meng, Ermon: Discrete
// Diffusion Modeling by Estimating the Ratios of the Data Distribution, 2024); cosine: its fork protein_lig_sedd.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/config/fields.h"

namespace oarlock {

enum class NoiseKind { kLogLinear, kGeometric, kCosine };

// The section "noise".
struct NoiseConfig {
  NoiseKind kind = NoiseKind::kLogLinear;  // type: loglinear | geometric | cosine
  double eps = 1e-3;                       // loglinear: at t = 1 a token has moved with probability 1 - eps
  double sigma_min = 1e-4;                 // geometric, cosine: the noise at t = 0
  double sigma_max = 20;                   // geometric, cosine: the noise at t = 1; cosine: 0.8
};

void describe(NoiseConfig& config, Fields& fields);

// sigma(t), elementwise.
//   loglinear: -log(1 - (1 - eps) t)
//   geometric: sigma_min^(1 - t) sigma_max^t
//   cosine:    sigma_max + (sigma_min - sigma_max) (1 + cos(pi t)) / 2
at::Tensor total_noise(const NoiseConfig& config, const at::Tensor& t);

// d sigma / dt, elementwise.
at::Tensor noise_rate(const NoiseConfig& config, const at::Tensor& t);

}  // namespace oarlock
