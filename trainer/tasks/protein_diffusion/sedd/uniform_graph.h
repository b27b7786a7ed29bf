// Noise replaces: every token goes to every other at the same rate, 1 / tokens.
#pragma once

#include "trainer/tasks/protein_diffusion/sedd/graph.h"

namespace oarlock {

class UniformGraph final : public Graph {
 public:
  explicit UniformGraph(int64_t tokens) : tokens_(tokens) {}

  int64_t states() const override { return tokens_; }
  bool absorbing() const override { return false; }
  at::Tensor noised(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                    const at::Tensor& replacement) const override;
  at::Tensor limit(const at::Tensor& uniform) const override;
  at::Tensor score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                           const at::Tensor& x0) const override;
  at::Tensor transposed_rate(const at::Tensor& x, at::ScalarType type) const override;
  at::Tensor transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const override;
  at::Tensor staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const override;

 private:
  int64_t tokens_;
};

}  // namespace oarlock
