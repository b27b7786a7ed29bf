#include "trainer/tasks/protein_diffusion/sedd/uniform_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/where.h>

namespace oarlock {

at::Tensor UniformGraph::noised(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                                const at::Tensor& replacement) const {
  const at::Tensor chance = at::expm1(-sigma).neg().unsqueeze(-1);
  return at::where(move.lt(chance), limit(replacement), x0);
}

at::Tensor UniformGraph::limit(const at::Tensor& uniform) const {
  return (uniform * tokens_).to(at::kLong).clamp_max(tokens_ - 1);
}

// With N tokens and e = e^sigma - 1, the true ratio between x0 and any other token is 1 + N / e. Where x is x0, the
// ratio of every other token is its inverse, q = e / (e + N); elsewhere it is 1 but for x0's, which is 1 / q.
at::Tensor UniformGraph::score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                                       const at::Tensor& x0) const {
  const auto n = static_cast<double>(tokens_);
  const at::Tensor e = at::expm1(sigma).unsqueeze(-1);
  const at::Tensor q = e / (e + n);
  const auto at_state = [](const at::Tensor& values, const at::Tensor& state) {
    return values.gather(-1, state.unsqueeze(-1)).squeeze(-1);
  };
  const auto mean_of_others = [&](const at::Tensor& values) { return values.mean(-1) - at_state(values, x) / n; };

  const at::Tensor stayed = x.eq(x0);
  const at::Tensor mean_log = mean_of_others(log_score);
  const at::Tensor negative = at::where(stayed, q * mean_log, at_state(log_score, x0) / e + mean_log);
  const at::Tensor constant =
      at::where(stayed, q * (q.log() - 1) * ((n - 1) / n), ((q.log() + 1).neg() / q - (n - 2)) / n);
  return mean_of_others(at::exp(log_score)) - negative + constant;
}

at::Tensor UniformGraph::transposed_rate(const at::Tensor& x, at::ScalarType type) const {
  return at::one_hot(x, tokens_).to(type).neg() + 1.0 / static_cast<double>(tokens_);
}

at::Tensor UniformGraph::transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const {
  const at::Tensor each = at::expm1(-sigma).neg().view({-1, 1, 1}) / static_cast<double>(tokens_);
  return each + at::exp(-sigma).view({-1, 1, 1}) * at::one_hot(x, tokens_);
}

at::Tensor UniformGraph::staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const {
  const at::Tensor growth = at::exp(dsigma).view({-1, 1, 1});
  const at::Tensor spread = at::expm1(dsigma).neg().view({-1, 1, 1}) / static_cast<double>(tokens_);
  return spread * score.sum(-1, /*keepdim=*/true) + score * growth;
}

}  // namespace oarlock
