// The equivariant layer of eComFormer: node features become scalars (l = 0), vectors (l = 1) and l = 2 tensors, and are
// reduced to scalars again. Because input and output are scalars, the tensor products are products and dot products
// with the spherical harmonics of the edges. Their coefficients are those of e3nn's FullyConnectedTensorProduct: path
// weight / sqrt(2 l + 1).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "trainer/nn/batch_norm.h"
#include "trainer/nn/mlp.h"
#include "trainer/tasks/comformer/layers.h"

namespace oarlock::comformer {

// Returns the real spherical harmonics up to l = 2 of the directions of vectors, [e, 3] -> [e, 9]: l = 0, then l = 1 as
// x, y, z, then l = 2 as xz, xy, y^2 - (x^2 + z^2) / 2, yz, (z^2 - x^2) / 2, normalized so that the squares of each l
// sum to 2 l + 1. Order and normalization ("component") are those of e3nn (https://docs.e3nn.org,
// o3.spherical_harmonics).
at::Tensor spherical_harmonics(const at::Tensor& vectors);

// The weights of a tensor product as a function of the edge features. Parameters: fc.0, fc.2.
class PathWeights final : public torch::nn::Module {
 public:
  PathWeights(int64_t edge_width, int64_t weights);
  at::Tensor forward(const at::Tensor& edges);  // [e, edge width] -> [e, weights]

 private:
  std::shared_ptr<Mlp> layers_;
};

class EquivariantUpdate final : public torch::nn::Module {
 public:
  EquivariantUpdate(int64_t width, int64_t edge_width);
  // x [n, width], edges [e, edge width] -> [n, width]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& edges, const CrystalBatch& batch);

 private:
  torch::nn::Linear node_;
  torch::nn::Linear skip_;
  std::shared_ptr<PathWeights> up_;
  std::shared_ptr<PathWeights> down_;
  BatchNorm1d norm_;
  torch::nn::Linear out_;
};

}  // namespace oarlock::comformer
