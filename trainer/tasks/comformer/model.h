// iComFormer and eComFormer (Yan et al., Complete and Efficient Graph Transformers for Crystal Material Property
// Prediction, ICLR 2024, https://arxiv.org/abs/2403.11857), which predict one or several numbers per crystal.
// Parameters have the names, the order and the shapes of the authors' program.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "trainer/tasks/comformer/config.h"
#include "trainer/tasks/comformer/layers.h"

namespace oarlock::comformer {

constexpr int64_t kAtomFeatures = 92;

// The common part of both models: pooling over the atoms of a crystal, and the head. Not thread-safe.
class Comformer : public torch::nn::Module {
 public:
  // Returns the predictions of a batch of g crystals, [g, output features].
  at::Tensor forward(const CrystalBatch& batch);

 protected:
  Comformer() = default;

  // Must be called after the derived class has registered its layers: parameters are in the order of the original.
  void register_head(const ComformerConfig& config);

 private:
  // Returns the features of the atoms after all layers, [n, node features].
  virtual at::Tensor nodes(const CrystalBatch& batch) = 0;

  std::shared_ptr<torch::nn::Module> hidden_;
  torch::nn::Linear first_{nullptr};
  torch::nn::Linear out_{nullptr};
};

// Creates the model that `config` selects, with new parameters from LibTorch's default generator.
std::shared_ptr<Comformer> make_comformer(const ComformerConfig& config);

}  // namespace oarlock::comformer
