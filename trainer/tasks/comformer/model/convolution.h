// The node-wise transformer layer of ComFormer (Yan et al., ICLR 2024, https://arxiv.org/abs/2403.11857).
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

// What an edge from j to i tells i, in both kinds of layer: with parts [..., width] of the two and of what lies
// between,
//   message([v_i, v_j, e]) * sigmoid(batch_norm(q_i * key([k_i, k_j, e]) / sqrt(width)))
// There is no softmax: a message's weight does not depend on the others'.
struct GatedMessage {
  at::Tensor query;
  at::Tensor key_to;
  at::Tensor key_from;
  at::Tensor value_to;
  at::Tensor value_from;
  at::Tensor between;
};

at::Tensor gated(const GatedMessage& parts, TwoLayers& message, TwoLayers& key, BatchNorm1dImpl& norm);

class ComformerConvolution final : public torch::nn::Module {
 public:
  explicit ComformerConvolution(int64_t width);
  // x [n, width], edges [e, width] -> [n, width]: softplus(x + batch_norm(linear(the sum of the messages)))
  at::Tensor forward(const at::Tensor& x, const at::Tensor& edges, const CrystalBatch& batch);

 private:
  torch::nn::Linear key_;
  torch::nn::Linear query_;
  torch::nn::Linear value_;
  torch::nn::Linear edge_;
  torch::nn::Linear combine_;
  std::shared_ptr<TwoLayers> message_;
  std::shared_ptr<TwoLayers> key_update_;
  BatchNorm1d norm_;
  BatchNorm1d gate_norm_;
};

}  // namespace oarlock
