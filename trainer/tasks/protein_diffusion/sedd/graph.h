// How noise moves tokens: a continuous-time Markov chain over the states of one position, with rate matrix Q. All
// positions move alike and independently.
// Source: graph_lib.py of https://github.com/louaaron/Score-Entropy-Discrete-Diffusion (Lou, Meng, Ermon 2024).
//
// Shapes, here and in all of this folder: x, x0 int64 [n, length]: tokens, noised and clean; sigma, dsigma float [n]:
// noise of each sequence; score, log_score float [n, length, states]: ratios p(y) / p(x) for each state y that one
// position may have instead of x. Everything runs on the tensors' device, without waiting for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "trainer/config/fields.h"

namespace oarlock {

// The logarithms of the ratios at x, float32 [n, length, states], as SeddModel::forward gives them.
using LogScore = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& sigma)>;

class Graph {
 public:
  virtual ~Graph() = default;

  // Of a position: the tokens, and behind them the mask where there is one.
  virtual int64_t states() const = 0;

  // Whether the last state is the mask, which noise ends in and no sample may contain.
  virtual bool absorbing() const = 0;

  // x after noise sigma, a draw of e^(sigma Q): a position moves where `move` (uniform in [0, 1), [n, length]) is below
  // 1 - e^-sigma, in the uniform graph to token floor(replacement * states), a uniform number as well.
  virtual at::Tensor noised(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                            const at::Tensor& replacement) const = 0;

  // The state that noise ends in, from uniform numbers [n, length].
  virtual at::Tensor limit(const at::Tensor& uniform) const = 0;

  // [n, length]: the score entropy of each position given x0, with its constant: 0 at the true ratios
  // p(y | x0) / p(x | x0), larger everywhere else.
  virtual at::Tensor score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                                   const at::Tensor& x0) const = 0;

  // Row x of Q as [n, length, states].
  virtual at::Tensor transposed_rate(const at::Tensor& x, at::ScalarType type) const = 0;

  // Row x of e^(sigma Q) as [n, length, states].
  virtual at::Tensor transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const = 0;

  // p_(sigma - dsigma)(y) / p_sigma(x), by e^(-dsigma Q) score.
  virtual at::Tensor staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const = 0;
};

enum class GraphKind { kAbsorb, kUniform };

// The section "graph".
struct GraphConfig {
  GraphKind kind = GraphKind::kAbsorb;  // type: absorb | uniform
};

void describe(GraphConfig& config, Fields& fields);

// With so many tokens; the absorbing graph has one state more.
std::unique_ptr<Graph> make_graph(const GraphConfig& config, int64_t tokens);

// The rates of the reversed chain at x, [n, length, states]: score * Q^T, with minus their sum at x itself.
at::Tensor reverse_rate(const Graph& graph, const at::Tensor& x, const at::Tensor& score);

}  // namespace oarlock
