// iComFormer and eComFormer (Yan et al., Complete and Efficient Graph Transformers for Crystal Material Property
// Prediction, ICLR 2024, https://arxiv.org/abs/2403.11857): a crystal to one or several numbers. Parameters have the
// names, the order and the shapes of the authors' program.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "trainer/config/fields.h"
#include "trainer/tasks/comformer/model/crystal_batch.h"

namespace oarlock {

enum class ComformerKind { kInvariant, kEquivariant };

// The section "model". With the defaults iComFormer has 4,966,497 parameters (4,111,201 with 3 convolutions),
// eComFormer with its 3 convolutions 5,583,809.
struct ComformerConfig {
  ComformerKind kind = ComformerKind::kInvariant;
  int64_t conv_layers = 4;
  int64_t edge_features = 256;           // Gaussians for lengths
  int64_t triplet_input_features = 256;  // Gaussians for angles; iComFormer only
  int64_t node_features = 256;
  int64_t fc_features = 256;
  int64_t output_features = 1;
};

constexpr int64_t kAtomFeatures = 92;

void describe(ComformerConfig& config, Fields& fields);

class Comformer : public torch::nn::Module {
 public:
  // -> [g, output features]
  at::Tensor forward(const CrystalBatch& batch);

 protected:
  Comformer() = default;

  // After the layers of the kind, so that the parameters come in the original's order.
  void register_head(const ComformerConfig& config);

 private:
  // The features of the atoms after all layers, [n, node features].
  virtual at::Tensor nodes(const CrystalBatch& batch) = 0;

  std::shared_ptr<torch::nn::Module> hidden_;
  torch::nn::Linear first_{nullptr};
  torch::nn::Linear out_{nullptr};
};

std::shared_ptr<Comformer> make_comformer(const ComformerConfig& config);

}  // namespace oarlock
