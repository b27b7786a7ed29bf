#include "trainer/tasks/comformer/model/basis.h"

#include <ATen/ops/linspace.h>
#include <ATen/ops/softplus.h>

namespace oarlock {

BasisEmbedding::BasisEmbedding(const BasisOptions& options)
    : options_(options), linear_(register_module("1", torch::nn::Linear(options.bins, options.width))) {}

at::Tensor BasisEmbedding::forward(const at::Tensor& x) {
  const at::Tensor centres = at::linspace(options_.least, options_.most, options_.bins, x.options());
  const double spacing = (options_.most - options_.least) / static_cast<double>(options_.bins - 1);
  const at::Tensor gaussians = (-(x.unsqueeze(-1) - centres).square() / spacing).exp();
  return at::softplus(linear_->forward(gaussians));
}

at::Tensor inverse_lengths(const at::Tensor& vectors) {
  constexpr double kScale = -0.75;
  return vectors.norm(2, -1).reciprocal() * kScale;
}

}  // namespace oarlock
