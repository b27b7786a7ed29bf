// The edge-wise transformer layer of iComFormer: what the three lattice vectors tell each edge.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstdint>
#include <memory>

#include "trainer/nn/batch_norm.h"
#include "trainer/nn/two_layers.h"

namespace oarlock {

class EdgeUpdate final : public torch::nn::Module {
 public:
  explicit EdgeUpdate(int64_t width);
  // edges [e, width]; of each crystal's lattice vectors the lengths [g, 3, width]; crystal_of_edge int64 [e]; of each
  // edge with each lattice vector the angle [e, 3, width] -> [e, width]
  at::Tensor forward(const at::Tensor& edges, const at::Tensor& lengths, const at::Tensor& crystal_of_edge,
                     const at::Tensor& angles);

 private:
  struct Lattice {
    torch::nn::Linear key;
    torch::nn::Linear value;
  };

  Lattice lattice_layers(int64_t vector, int64_t width);

  // Of the original, which declares these layers and never uses them: they get no gradient.
  torch::nn::Embedding unused_embedding_;
  torch::nn::Linear key_;
  torch::nn::Linear query_;
  torch::nn::Linear value_;
  std::array<Lattice, 3> lattice_;
  torch::nn::Linear angle_;
  torch::nn::Linear unused_length_;
  torch::nn::Linear combine_;
  std::shared_ptr<TwoLayers> message_;
  std::shared_ptr<TwoLayers> key_update_;
  BatchNorm1d gate_norm_;
  BatchNorm1d norm_;
};

}  // namespace oarlock
