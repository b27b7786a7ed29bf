// The equivariant layer of eComFormer: node features travel as scalars (l = 0), vectors (l = 1) and l = 2 tensors, and
// come back as scalars. Since both ends are scalars, the tensor products are products and dot products with the
// spherical harmonics of the edges; their coefficients are those of e3nn's FullyConnectedTensorProduct, path weight /
// sqrt(2 l + 1).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "trainer/nn/batch_norm.h"
#include "trainer/nn/two_layers.h"
#include "trainer/tasks/comformer/model/crystal_batch.h"

namespace oarlock {

// fc.0, fc.2: the weights of a tensor product, from the features of an edge.
class PathWeights final : public torch::nn::Module {
 public:
  PathWeights(int64_t edge_width, int64_t weights);
  at::Tensor forward(const at::Tensor& edges);  // [e, edge width] -> [e, weights]

 private:
  std::shared_ptr<TwoLayers> layers_;
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

}  // namespace oarlock
