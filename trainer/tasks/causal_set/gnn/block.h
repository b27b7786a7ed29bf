// The block of QuantumGrav's networks: convolution, normalisation, activation, a connection past them, dropout.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "trainer/config/fields.h"
#include "trainer/nn/batch_norm.h"
#include "trainer/tasks/causal_set/gnn/convolution.h"

namespace oarlock {

enum class Normalizer { kBatchNorm, kNone };
enum class Activation { kRelu, kElu, kGelu, kSilu, kTanh, kIdentity };

struct BlockConfig {
  ConvolutionConfig convolution;
  int64_t out = 128;
  Normalizer normalizer = Normalizer::kBatchNorm;
  Activation activation = Activation::kRelu;
  bool skip = true;  // x, through a linear layer where the widths differ, is added
  double dropout = 0.3;
};

void describe(BlockConfig& config, Fields& fields);

at::Tensor activate(Activation activation, const at::Tensor& x);

// Parameters: normalizer.*, conv.*, skip.proj.weight.
class GraphBlock final : public torch::nn::Module {
 public:
  GraphBlock(const BlockConfig& config, int64_t in);

  // x [nodes, in] -> [nodes, config.out]
  at::Tensor forward(const at::Tensor& x, const GraphEdges& edges);

 private:
  BlockConfig config_;
  BatchNorm1d normalizer_{nullptr};
  std::shared_ptr<Convolution> conv_;
  torch::nn::Linear projection_{nullptr};
};

}  // namespace oarlock
