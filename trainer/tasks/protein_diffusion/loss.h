// The training objective of SEDD: the score entropy of noised sequences, weighted by the rate of the noise (equation 6
// of Lou, Meng, Ermon 2024; losses.py of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion), and the
// curriculum of the fork protein_lig_sedd (sample_transition_curriculum of its graph_lib.py, which the guide uses, and
// sample_timesteps_curriculum of its noise_lib.py, the probabilistic one).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trainer/tasks/protein_diffusion/config.h"
#include "trainer/tasks/protein_diffusion/graph.h"

namespace oarlock::protein_diffusion {

// Clean sequences, and the random numbers of their noise.
struct NoiseDraw {
  at::Tensor tokens;        // int64 [n, length]
  at::Tensor time;          // float [n]
  at::Tensor move;          // float [n, length], uniform in [0, 1)
  at::Tensor replacement;   // float [n, length], uniform in [0, 1); uniform graph only
  double noise_factor = 1;  // see curriculum_noise_factor()
};

// Returns the contribution of each position to the loss, float [n, length]. The sum over a sequence, averaged over
// times, is an upper bound of -ln p(sequence).
at::Tensor position_losses(const LogScore& log_score, const Graph& graph, const NoiseConfig& noise,
                           const NoiseDraw& draw);

// Returns the factor in [0.1, 1] by which step `step` reduces the noise of the tokens. As in the fork, the model gets,
// and the loss is weighted by, the noise without this factor. 1 if the curriculum is disabled or probabilistic.
//   0.1 + 0.9 p with p = min(1, step / preschool_time); exponential: p = 1 - e^(-3 step / preschool_time); cosine:
//   p = (1 - cos(pi min(1, step / preschool_time))) / 2
double curriculum_noise_factor(const CurriculumConfig& config, int64_t step);

// Returns the times of a step from numbers u, uniform in [0, 1): sample_times(u), or, with a probabilistic curriculum
// before preschool_time, 1e-3 + (1 - 2e-3) u^(1 + bias * bias_strength) with a bias that falls from 1 to 0.
at::Tensor curriculum_times(const CurriculumConfig& config, const at::Tensor& uniform, int64_t step);

// Returns 1e-3 + (1 - 1e-3) u. No time is below 1e-3, because the variance of the loss is infinite down to 0.
at::Tensor sample_times(const at::Tensor& uniform);

}  // namespace oarlock::protein_diffusion
