// A number as features: Gaussians around equally spaced centres, then a linear layer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace oarlock {

struct BasisOptions {
  double least = -4;  // the first centre
  double most = 0;    // the last
  int64_t bins = 256;
  int64_t width = 256;  // of the features
};

// softplus(linear(exp(-gamma (x - centre)^2))), gamma = 1 / spacing (not squared, as in the original). The linear layer
// is named 1: it is the second of three in the original's Sequential.
class BasisEmbedding final : public torch::nn::Module {
 public:
  explicit BasisEmbedding(const BasisOptions& options);
  // [...] -> [..., width]
  at::Tensor forward(const at::Tensor& x);

 private:
  BasisOptions options_;
  torch::nn::Linear linear_;
};

// -0.75 / |v|, [..., 3] -> [...]: how lengths in angstrom enter the basis.
at::Tensor inverse_lengths(const at::Tensor& vectors);

}  // namespace oarlock
