// Noise masks: every token goes to the mask at rate 1 and stays there.
#pragma once

#include "trainer/tasks/protein_diffusion/sedd/graph.h"

namespace oarlock {

class AbsorbingGraph final : public Graph {
 public:
  explicit AbsorbingGraph(int64_t tokens) : mask_(tokens) {}

  int64_t states() const override { return mask_ + 1; }
  bool absorbing() const override { return true; }
  at::Tensor noised(const at::Tensor& x0, const at::Tensor& sigma, const at::Tensor& move,
                    const at::Tensor& replacement) const override;
  at::Tensor limit(const at::Tensor& uniform) const override;
  at::Tensor score_entropy(const at::Tensor& log_score, const at::Tensor& sigma, const at::Tensor& x,
                           const at::Tensor& x0) const override;
  at::Tensor transposed_rate(const at::Tensor& x, at::ScalarType type) const override;
  at::Tensor transposed_transition(const at::Tensor& x, const at::Tensor& sigma) const override;
  at::Tensor staggered_score(const at::Tensor& score, const at::Tensor& dsigma) const override;

 private:
  int64_t mask_;
};

}  // namespace oarlock
