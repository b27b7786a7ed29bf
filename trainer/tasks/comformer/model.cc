#include "trainer/tasks/comformer/model.h"

#include <ATen/ops/silu.h>
#include <torch/nn/modules/container/modulelist.h>

#include <vector>

#include "trainer/nn/scatter.h"

namespace oarlock::comformer {

namespace {

// The linear layer before an activation, named fc.0.
class HiddenLayer final : public torch::nn::Module {
 public:
  HiddenLayer(int64_t in, int64_t out) : linear(register_module("0", torch::nn::Linear(in, out))) {}
  torch::nn::Linear linear;
};

// Returns the cosine of the angle between each edge and each lattice vector of its crystal, [e, 3].
at::Tensor cosines(const at::Tensor& edges, const at::Tensor& lattices) {
  const at::Tensor products = (edges.unsqueeze(1) * lattices).sum(-1);
  return (products / (edges.norm(2, -1, true) * lattices.norm(2, -1))).clamp(-1, 1);
}

// iComFormer: edge lengths and angles with the lattice vectors, which are invariant under rotation.
class IComformer final : public Comformer {
 public:
  explicit IComformer(const ComformerConfig& config)
      : atoms_(register_module("atom_embedding", torch::nn::Linear(kAtomFeatures, config.node_features))),
        length_(register_module(
            "rbf", std::make_shared<BasisEmbedding>(BasisOptions{
                       .first = -4, .last = 0, .bins = config.edge_features, .width = config.node_features}))),
        angle_(register_module(
            "rbf_angle",
            std::make_shared<BasisEmbedding>(BasisOptions{
                .first = -1, .last = 1, .bins = config.triplet_input_features, .width = config.node_features}))) {
    torch::nn::ModuleList layers = register_module("att_layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.conv_layers; ++i) {
      convolutions_.push_back(std::make_shared<ComformerConvolution>(config.node_features));
      layers->push_back(convolutions_.back());
    }
    edge_update_ = register_module("edge_update_layer", std::make_shared<EdgeUpdate>(config.node_features));
    register_head(config);
  }

 private:
  at::Tensor nodes(const CrystalBatch& batch) override {
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

  torch::nn::Linear atoms_;
  std::shared_ptr<BasisEmbedding> length_;
  std::shared_ptr<BasisEmbedding> angle_;
  std::vector<std::shared_ptr<ComformerConvolution>> convolutions_;
  std::shared_ptr<EdgeUpdate> edge_update_;
};

// eComFormer: an equivariant layer after the first convolution uses the directions of edges.
class EComformer final : public Comformer {
 public:
  explicit EComformer(const ComformerConfig& config)
      : atoms_(register_module("atom_embedding", torch::nn::Linear(kAtomFeatures, config.node_features))),
        length_(register_module(
            "rbf", std::make_shared<BasisEmbedding>(BasisOptions{
                       .first = -4, .last = 0, .bins = config.edge_features, .width = config.node_features}))) {
    torch::nn::ModuleList layers = register_module("att_layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.conv_layers; ++i) {
      convolutions_.push_back(std::make_shared<ComformerConvolution>(config.node_features));
      layers->push_back(convolutions_.back());
    }
    equivariant_ =
        register_module("equi_update", std::make_shared<EquivariantUpdate>(config.node_features, config.node_features));
    register_head(config);
  }

 private:
  at::Tensor nodes(const CrystalBatch& batch) override {
    const at::Tensor edges = length_->forward(inverse_lengths(batch.edge_vectors));
    at::Tensor x = convolutions_[0]->forward(atoms_->forward(batch.atoms), edges, batch);
    x = equivariant_->forward(x, edges, batch);
    for (size_t i = 1; i < convolutions_.size(); ++i) x = convolutions_[i]->forward(x, edges, batch);
    return x;
  }

  torch::nn::Linear atoms_;
  std::shared_ptr<BasisEmbedding> length_;
  std::vector<std::shared_ptr<ComformerConvolution>> convolutions_;
  std::shared_ptr<EquivariantUpdate> equivariant_;
};

}  // namespace

void Comformer::register_head(const ComformerConfig& config) {
  const auto hidden = register_module("fc", std::make_shared<HiddenLayer>(config.node_features, config.fc_features));
  hidden_ = hidden;
  first_ = hidden->linear;
  out_ = register_module("fc_out", torch::nn::Linear(config.fc_features, config.output_features));
}

at::Tensor Comformer::forward(const CrystalBatch& batch) {
  const at::Tensor crystals = segment_mean(nodes(batch), batch.atom_begin);
  return out_->forward(at::silu(first_->forward(crystals)));
}

std::shared_ptr<Comformer> make_comformer(const ComformerConfig& config) {
  if (config.kind == ComformerKind::kEquivariant) return std::make_shared<EComformer>(config);
  return std::make_shared<IComformer>(config);
}

}  // namespace oarlock::comformer
