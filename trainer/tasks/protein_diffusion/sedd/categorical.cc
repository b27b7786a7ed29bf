#include "trainer/tasks/protein_diffusion/sedd/categorical.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cumsum.h>

namespace oarlock {

at::Tensor draw_categorical(const at::Tensor& weights, const at::Tensor& uniform) {
  const at::Tensor cumulative = at::cumsum(weights.clamp_min(0), -1);
  const at::Tensor target = cumulative.select(-1, -1) * uniform;
  return cumulative.le(target.unsqueeze(-1)).sum(-1).clamp_max(weights.size(-1) - 1);
}

}  // namespace oarlock
