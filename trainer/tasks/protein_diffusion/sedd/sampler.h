// Sampling: from noise back to sequences, by the reversed chain. Source: sampling.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trainer/config/fields.h"
#include "trainer/tasks/protein_diffusion/sedd/graph.h"
#include "trainer/tasks/protein_diffusion/sedd/noise.h"

namespace oarlock {

enum class Predictor { kEuler, kAnalytic };

struct SamplerConfig {
  Predictor predictor = Predictor::kEuler;
  int64_t steps = 100;
  bool noise_removal = true;  // a last step that leaves no noise, and no mask
};

// The keys predictor, steps and noise_removal of the section "sampling".
void describe(SamplerConfig& config, Fields& fields);

// What the positions' next states are drawn from, [n, length, states], need not sum to 1. x are the states now, score
// the ratios at x.
// Euler: one step of the reversed rates; rate: of the noise, [n].
at::Tensor euler_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& rate,
                         double step_size);
// Exact where the score is: from noise sigma to sigma - dsigma.
at::Tensor analytic_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& dsigma);
// From noise sigma to none; the mask is not among the states.
at::Tensor denoising_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& sigma);

// A sequence of `length` tokens for each seed, int64 [seeds, length] on the device. A sequence depends on its own seed
// (and on the model), whichever others are sampled with it.
at::Tensor sample_sequences(const SamplerConfig& config, const Graph& graph, const NoiseConfig& noise,
                            const LogScore& log_score, std::span<const int64_t> seeds, int64_t length,
                            at::Device device);

}  // namespace oarlock
