#include "trainer/tasks/comformer/model/ecomformer.h"

#include <torch/nn/modules/container/modulelist.h>

namespace oarlock {

EComformer::EComformer(const ComformerConfig& config)
    : atoms_(register_module("atom_embedding", torch::nn::Linear(kAtomFeatures, config.node_features))),
      length_(register_module(
          "rbf", std::make_shared<BasisEmbedding>(BasisOptions{
                     .least = -4, .most = 0, .bins = config.edge_features, .width = config.node_features}))) {
  torch::nn::ModuleList layers = register_module("att_layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.conv_layers; ++i) {
    convolutions_.push_back(std::make_shared<ComformerConvolution>(config.node_features));
    layers->push_back(convolutions_.back());
  }
  equivariant_ =
      register_module("equi_update", std::make_shared<EquivariantUpdate>(config.node_features, config.node_features));
  register_head(config);
}

at::Tensor EComformer::nodes(const CrystalBatch& batch) {
  const at::Tensor edges = length_->forward(inverse_lengths(batch.edge_vectors));
  at::Tensor x = convolutions_[0]->forward(atoms_->forward(batch.atoms), edges, batch);
  x = equivariant_->forward(x, edges, batch);
  for (size_t i = 1; i < convolutions_.size(); ++i) x = convolutions_[i]->forward(x, edges, batch);
  return x;
}

}  // namespace oarlock
