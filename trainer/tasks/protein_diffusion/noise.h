// Noise schedules: the total noise sigma(t) of a sequence at time t in [0, 1], and its derivative.
// Sources: noise_lib.py of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion (Lou, Meng, Ermon: Discrete
// Diffusion Modeling by Estimating the Ratios of the Data Distribution, 2024); cosine: its fork protein_lig_sedd.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/tasks/protein_diffusion/config.h"

namespace oarlock::protein_diffusion {

// Returns sigma(t), elementwise.
//   loglinear: -log(1 - (1 - eps) t)
//   geometric: sigma_min^(1 - t) sigma_max^t
//   cosine:    sigma_max + (sigma_min - sigma_max) (1 + cos(pi t)) / 2
at::Tensor total_noise(const NoiseConfig& config, const at::Tensor& t);

// Returns d sigma / dt, elementwise.
at::Tensor noise_rate(const NoiseConfig& config, const at::Tensor& t);

}  // namespace oarlock::protein_diffusion
