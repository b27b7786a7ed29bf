// The training objective of SEDD: score entropy of noised sequences, weighted by the rate of the noise (equation 6 of
// Lou, Meng, Ermon 2024; losses.py of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion).
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/tasks/protein_diffusion/sedd/graph.h"
#include "trainer/tasks/protein_diffusion/sedd/noise.h"

namespace oarlock {

// Clean sequences, and the numbers that their noise is made from.
struct NoiseDraw {
  at::Tensor tokens;        // int64 [n, length]
  at::Tensor time;          // float [n]
  at::Tensor move;          // float [n, length], uniform
  at::Tensor replacement;   // the same; uniform graph only
  double noise_factor = 1;  // of the noise that the tokens see (curriculum.h)
};

// What each position adds to the loss, float [n, length]. The sum over a sequence, averaged over times, is an upper
// bound of -ln p(sequence).
at::Tensor position_losses(const LogScore& log_score, const Graph& graph, const NoiseConfig& noise,
                           const NoiseDraw& draw);

}  // namespace oarlock
