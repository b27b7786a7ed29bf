#include "trainer/tasks/protein_diffusion/sedd/absorbing_graph.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

namespace oarlock {

at::Tensor AbsorbingGraph::noised(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                                  const at::Tensor& /*replacement*/) const {
  const at::Tensor chance = at::expm1(-sigma).neg().unsqueeze(-1);
  return x0.masked_fill(move.lt(chance), mask_);
}

at::Tensor AbsorbingGraph::limit(const at::Tensor& uniform) const { return at::full_like(uniform, mask_, at::kLong); }

// At a masked position: sum over tokens y of s_y, minus r log s_x0, plus r (log r - 1), where r = 1 / (e^sigma - 1) is
// the true ratio for x0, and that of every other token is 0. A token that is not masked came from nowhere else: 0.
at::Tensor AbsorbingGraph::score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                                         const at::Tensor& x0) const {
  const at::Tensor masked = x.eq(mask_);
  // What is not looked at must not overflow: infinity times a gradient of 0 would be NaN.
  const at::Tensor looked_at = log_score.slice(-1, 0, mask_).masked_fill(masked.logical_not().unsqueeze(-1), 0);
  const at::Tensor ratio = at::expm1(sigma).reciprocal().unsqueeze(-1);
  const at::Tensor positive = at::exp(looked_at).sum(-1);
  const at::Tensor negative = ratio * looked_at.gather(-1, x0.unsqueeze(-1)).squeeze(-1);
  const at::Tensor constant = ratio * (ratio.log() - 1);
  return (positive - negative + constant).masked_fill(masked.logical_not(), 0);
}

at::Tensor AbsorbingGraph::transposed_rate(const at::Tensor& x, at::ScalarType type) const {
  return x.eq(mask_).unsqueeze(-1).to(type) - at::one_hot(x, states()).to(type);
}

at::Tensor AbsorbingGraph::transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const {
  const at::Tensor stays = at::exp(-sigma).view({-1, 1, 1});
  const at::Tensor moved = at::expm1(-sigma).neg().view({-1, 1, 1});
  return stays * at::one_hot(x, states()) + moved * x.eq(mask_).unsqueeze(-1);
}

at::Tensor AbsorbingGraph::staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const {
  const at::Tensor into_mask = at::expm1(dsigma).neg().unsqueeze(-1) * score.sum(-1);
  at::Tensor out = score * at::exp(dsigma).view({-1, 1, 1});
  out.select(-1, mask_).add_(into_mask);
  return out;
}

}  // namespace oarlock
