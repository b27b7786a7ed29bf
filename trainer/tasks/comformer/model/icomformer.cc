#include "trainer/tasks/comformer/model/icomformer.h"

#include <torch/nn/modules/container/modulelist.h>

namespace oarlock {
namespace {

// The cosine of each edge's angle with each lattice vector of its crystal: [e, 3].
at::Tensor cosines(const at::Tensor& edges, const at::Tensor& lattices) {
  const at::Tensor products = (edges.unsqueeze(1) * lattices).sum(-1);
  return (products / (edges.norm(2, -1, true) * lattices.norm(2, -1))).clamp(-1, 1);
}

}  // namespace

IComformer::IComformer(const ComformerConfig& config)
    : atoms_(register_module("atom_embedding", torch::nn::Linear(kAtomFeatures, config.node_features))),
      length_(register_module(
          "rbf", std::make_shared<BasisEmbedding>(BasisOptions{
                     .least = -4, .most = 0, .bins = config.edge_features, .width = config.node_features}))),
      angle_(register_module(
          "rbf_angle",
          std::make_shared<BasisEmbedding>(BasisOptions{
              .least = -1, .most = 1, .bins = config.triplet_input_features, .width = config.node_features}))) {
  torch::nn::ModuleList layers = register_module("att_layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.conv_layers; ++i) {
    convolutions_.push_back(std::make_shared<ComformerConvolution>(config.node_features));
    layers->push_back(convolutions_.back());
  }
  edge_update_ = register_module("edge_update_layer", std::make_shared<EdgeUpdate>(config.node_features));
  register_head(config);
}

at::Tensor IComformer::nodes(const CrystalBatch& batch) {
  const at::Tensor crystal_of_edge = batch.crystal_of.index_select(0, batch.edge_index[1]);
  const at::Tensor angles =
      angle_->forward(cosines(batch.edge_vectors, batch.lattices.index_select(0, crystal_of_edge)));
  const at::Tensor lattice_lengths = length_->forward(inverse_lengths(batch.lattices));
  at::Tensor edges = length_->forward(inverse_lengths(batch.edge_vectors));
  at::Tensor x = convolutions_[0]->forward(atoms_->forward(batch.atoms), edges, batch);
  edges = edge_update_->forward(edges, lattice_lengths, crystal_of_edge, angles);
  for (size_t i = 1; i < convolutions_.size(); ++i) x = convolutions_[i]->forward(x, edges, batch);
  return x;
}

}  // namespace oarlock
