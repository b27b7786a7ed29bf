// The forward process of SEDD and the training objective. The forward process consists of the noise schedule, and of a
// continuous-time Markov chain over the states of one position, with rate matrix Q. All positions change independently
// and by the same chain. Sources: noise_lib.py and graph_lib.py of
// https://github.com/louaaron/Score-Entropy-Discrete-Diffusion (Lou, Meng, Ermon: Discrete Diffusion Modeling by
// Estimating the Ratios of the Data Distribution, 2024); the cosine schedule: its fork protein_lig_sedd.
//
// Shapes in this directory: x and x0 are the noised and the clean tokens, int64 [n, length]; sigma and dsigma are the
// noise of each sequence, float [n]; score and log_score are the ratios p(y) / p(x) for each state y that one position
// may have instead of x, float [n, length, states]. All functions run on the device of the tensors without
// synchronizing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "workloads/protein_diffusion/config.h"

namespace oarlock::protein_diffusion {

// The total noise of a sequence at time t in [0, 1]. Returns sigma(t), elementwise.
//   loglinear: -log(1 - (1 - eps) t)
//   geometric: sigma_min^(1 - t) sigma_max^t
//   cosine:    sigma_max + (sigma_min - sigma_max) (1 + cos(pi t)) / 2
at::Tensor total_noise(const NoiseConfig& config, const at::Tensor& t);

// Returns d sigma / dt, elementwise.
at::Tensor noise_rate(const NoiseConfig& config, const at::Tensor& t);

// Returns the logarithms of the ratios at x, float32 [n, length, states], as SeddModel::forward() does.
using LogScore = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& sigma)>;

class Graph {
 public:
  virtual ~Graph() = default;

  // Number of states of a position: the tokens and, for an absorbing graph, the mask, which is the last state.
  virtual int64_t states() const = 0;

  // Whether the chain ends in the mask, which no sample may contain.
  virtual bool absorbing() const = 0;

  // Returns x after noise sigma, a draw from e^(sigma Q). A position changes if `move` (uniform in [0, 1), [n, length])
  // is below 1 - e^-sigma; in the uniform graph to token floor(replacement * states), with `replacement` uniform as
  // well.
  virtual at::Tensor sample_transition(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                                       const at::Tensor& replacement) const = 0;

  // Returns a draw from the limiting distribution of the chain, from uniform numbers [n, length].
  virtual at::Tensor sample_limit(const at::Tensor& uniform) const = 0;

  // Returns the score entropy of each position given x0, [n, length], including its constant: 0 at the true ratios
  // p(y | x0) / p(x | x0) and larger everywhere else.
  virtual at::Tensor score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                                   const at::Tensor& x0) const = 0;

  // Returns row x of Q, [n, length, states].
  virtual at::Tensor transposed_rate(const at::Tensor& x, at::ScalarType type) const = 0;

  // Returns row x of e^(sigma Q), [n, length, states].
  virtual at::Tensor transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const = 0;

  // Returns p_(sigma - dsigma)(y) / p_sigma(x), which is e^(-dsigma Q) score.
  virtual at::Tensor staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const = 0;
};

// Creates a graph over `tokens` tokens; the absorbing graph has one state more.
std::unique_ptr<Graph> make_graph(const GraphConfig& config, int64_t tokens);

// Returns the rates of the reverse process at x, [n, length, states]: score * Q^T, with minus their sum at x itself.
at::Tensor reverse_rate(const Graph& graph, const at::Tensor& x, const at::Tensor& score);

// Draws a state for each position, int64 [n, length], from weights [n, length, states] by inverting the cumulative
// distribution with a number of `uniform`, [n, length] in [0, 1). The weights need not sum to 1; negative weights count
// as 0. A state of weight 0 is not drawn unless all weights are 0. (The original uses the Gumbel trick, which needs a
// random number per state.)
at::Tensor sample_categorical(const at::Tensor& weights, const at::Tensor& uniform);

// ---- Training objective ------------------------------------------------------------------------------------------
// The score entropy of noised sequences, weighted by the rate of the noise (equation 6 of Lou, Meng, Ermon 2024;
// losses.py of the source), and the curriculum of the fork protein_lig_sedd (sample_transition_curriculum of its
// graph_lib.py, which the guide uses, and sample_timesteps_curriculum of its noise_lib.py, the probabilistic one).

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
