// Sampling: the reverse process, from noise to sequences. Source: sampling.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trainer/tasks/protein_diffusion/config.h"
#include "trainer/tasks/protein_diffusion/graph.h"

namespace oarlock::protein_diffusion {

// These three functions return the weights, [n, length, states], from which the next states of the positions are drawn;
// they need not sum to 1. x holds the current states, and score the ratios at x.

// One Euler step of the reverse rates. `rate` is the rate of the noise, [n].
at::Tensor euler_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& rate,
                         double step_size);
// From noise sigma to sigma - dsigma; exact if the score is.
at::Tensor analytic_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& dsigma);
// From noise sigma to none; without the mask.
at::Tensor denoising_weights(const Graph& graph, const at::Tensor& x, const at::Tensor& score, const at::Tensor& sigma);

// Samples a sequence of `length` tokens for each seed, int64 [seeds, length] on the device. A sequence depends only on
// the model and its own seed, not on the sequences that are sampled in the same call.
at::Tensor sample_sequences(const SamplerConfig& config, const Graph& graph, const NoiseConfig& noise,
                            const LogScore& log_score, std::span<const int64_t> seeds, int64_t length,
                            at::Device device);

}  // namespace oarlock::protein_diffusion
