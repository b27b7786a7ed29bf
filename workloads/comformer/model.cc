#include "workloads/comformer/model.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cmath>
#include <vector>

#include "trainer/nn/scatter.h"

namespace oarlock::comformer {

// ---- Layers ------------------------------------------------------------------------------------------------------

using torch::nn::Linear;

BasisEmbedding::BasisEmbedding(const BasisOptions& options)
    : options_(options), linear_(register_module("1", torch::nn::Linear(options.bins, options.width))) {}

at::Tensor BasisEmbedding::forward(const at::Tensor& x) {
  const at::Tensor centers = at::linspace(options_.first, options_.last, options_.bins, x.options());
  const double spacing = (options_.last - options_.first) / static_cast<double>(options_.bins - 1);
  const at::Tensor gaussians = (-(x.unsqueeze(-1) - centers).square() / spacing).exp();
  return at::softplus(linear_->forward(gaussians));
}

std::map<std::string, at::Tensor> BasisEmbedding::constant_buffers() const {
  return {{"0.centers", at::linspace(options_.first, options_.last, options_.bins)}};
}

at::Tensor inverse_lengths(const at::Tensor& vectors) {
  constexpr double kScale = -0.75;
  return vectors.norm(2, -1).reciprocal() * kScale;
}

at::Tensor gated_message(const GatedMessage& parts, Mlp& message, Mlp& key, BatchNorm1dImpl& norm) {
  const int64_t width = parts.query.size(-1);
  const at::Tensor keys = key.forward(at::cat({parts.key_to, parts.key_from, parts.between}, -1));
  const at::Tensor score = parts.query * keys / std::sqrt(static_cast<double>(width));
  const at::Tensor gate = norm.forward(score.reshape({-1, width})).view_as(score).sigmoid();
  return message.forward(at::cat({parts.value_to, parts.value_from, parts.between}, -1)) * gate;
}

ComformerConvolution::ComformerConvolution(int64_t width)
    : key_(register_module("lin_key", Linear(width, width))),
      query_(register_module("lin_query", Linear(width, width))),
      value_(register_module("lin_value", Linear(width, width))),
      edge_(register_module("lin_edge", Linear(width, width))),
      combine_(register_module("lin_concate", Linear(width, width))),
      message_(register_module("lin_msg_update", std::make_shared<Mlp>(3 * width, width, width, at::silu))),
      key_update_(register_module("key_update", std::make_shared<Mlp>(3 * width, width, width, at::silu))),
      norm_(register_module("bn", BatchNorm1d(width))),
      gate_norm_(register_module("bn_att", BatchNorm1d(width))) {}

at::Tensor ComformerConvolution::forward(const at::Tensor& x, const at::Tensor& edges, const CrystalBatch& batch) {
  const at::Tensor from = batch.edge_index[0];
  const at::Tensor to = batch.edge_index[1];
  const at::Tensor key = key_->forward(x);
  const at::Tensor value = value_->forward(x);
  const at::Tensor messages = gated_message({.query = query_->forward(x).index_select(0, to),
                                             .key_to = key.index_select(0, to),
                                             .key_from = key.index_select(0, from),
                                             .value_to = value.index_select(0, to),
                                             .value_from = value.index_select(0, from),
                                             .between = edge_->forward(edges)},
                                            *message_, *key_update_, *gate_norm_);
  const at::Tensor sums = segment_sum(messages, batch.edge_begin);
  return at::softplus(x + norm_->forward(combine_->forward(sums)));
}

namespace {

constexpr int64_t kUnusedWidth = 32;

// Applies a layer to each of the three lattice vectors, [g, 3, width] -> [g, 3, width].
template <typename Layers>
at::Tensor each_vector(const at::Tensor& lengths, const Layers& layer) {
  return at::stack({layer(0)->forward(lengths.select(1, 0)), layer(1)->forward(lengths.select(1, 1)),
                    layer(2)->forward(lengths.select(1, 2))},
                   1);
}

}  // namespace

EdgeUpdate::Lattice EdgeUpdate::lattice_layers(int64_t vector, int64_t width) {
  Linear key = register_module(fmt::format("lin_key_e{}", vector), Linear(width, width));
  return {.key = key, .value = register_module(fmt::format("lin_value_e{}", vector), Linear(width, width))};
}

EdgeUpdate::EdgeUpdate(int64_t width)
    : unused_embedding_(register_module("lemb", torch::nn::Embedding(3, kUnusedWidth))),
      key_(register_module("lin_key", Linear(width, width))),
      query_(register_module("lin_query", Linear(width, width))),
      value_(register_module("lin_value", Linear(width, width))),
      lattice_{lattice_layers(1, width), lattice_layers(2, width), lattice_layers(3, width)},
      angle_(register_module("lin_edge", Linear(torch::nn::LinearOptions(width, width).bias(false)))),
      unused_length_(register_module("lin_edge_len", Linear(width + kUnusedWidth, width))),
      combine_(register_module("lin_concate", Linear(width, width))),
      message_(register_module("lin_msg_update", std::make_shared<Mlp>(3 * width, width, width, at::silu))),
      key_update_(register_module("key_update", std::make_shared<Mlp>(3 * width, width, width, at::silu))),
      gate_norm_(register_module("bn_att", BatchNorm1d(width))),
      norm_(register_module("bn", BatchNorm1d(width))) {}

at::Tensor EdgeUpdate::forward(const at::Tensor& edges, const at::Tensor& lengths, const at::Tensor& crystal_of_edge,
                               const at::Tensor& angles) {
  const auto for_each_vector = [&](const at::Tensor& of_edge) { return of_edge.unsqueeze(1).expand_as(angles); };
  // All edges of a crystal have the same lattice, whose layers are computed once.
  const auto of_lattice = [&](auto member) {
    return each_vector(lengths, [&](size_t vector) { return lattice_[vector].*member; })
        .index_select(0, crystal_of_edge);
  };
  const at::Tensor messages = gated_message({.query = for_each_vector(query_->forward(edges)),
                                             .key_to = for_each_vector(key_->forward(edges)),
                                             .key_from = of_lattice(&Lattice::key),
                                             .value_to = for_each_vector(value_->forward(edges)),
                                             .value_from = of_lattice(&Lattice::value),
                                             .between = angle_->forward(angles)},
                                            *message_, *key_update_, *gate_norm_);
  return at::softplus(edges + norm_->forward(combine_->forward(messages).sum(1)));
}

at::Tensor spherical_harmonics(const at::Tensor& vectors) {
  const double root3 = std::sqrt(3.0);
  const double root5 = std::sqrt(5.0);
  const double root15 = std::sqrt(15.0);
  const at::Tensor unit = vectors / vectors.norm(2, -1, true);
  const at::Tensor x = unit.select(-1, 0);
  const at::Tensor y = unit.select(-1, 1);
  const at::Tensor z = unit.select(-1, 2);
  return at::stack({at::ones_like(x), root3 * x, root3 * y, root3 * z, root15 * x * z, root15 * x * y,
                    root5 * (y * y - 0.5 * (x * x + z * z)), root15 * y * z, 0.5 * root15 * (z * z - x * x)},
                   -1);
}

namespace {

constexpr int64_t kScalars = 64;
constexpr int64_t kVectors = 8;
constexpr int64_t kTensors = 8;
constexpr int64_t kPathWeights = kScalars * (kScalars + kVectors + kTensors);

at::Tensor softplus(const at::Tensor& x) { return at::softplus(x); }

// Spherical harmonics of l = 0, 1 and 2.
struct Harmonics {
  at::Tensor scalar;  // [e, 1]
  at::Tensor vector;  // [e, 3]
  at::Tensor tensor;  // [e, 5]
};

// Features of nodes: [n, 64], [n, 8, 3], [n, 8, 5].
struct Irreps {
  at::Tensor scalars;
  at::Tensor vectors;
  at::Tensor tensors;
};

// The weights [e, 5120] of the three paths, each as [e, in, out].
struct Paths {
  at::Tensor scalar;
  at::Tensor vector;
  at::Tensor tensor;
};

Paths paths_up(const at::Tensor& weights) {
  const auto parts = weights.split_with_sizes({kScalars * kScalars, kScalars * kVectors, kScalars * kTensors}, 1);
  return {.scalar = parts[0].view({-1, kScalars, kScalars}),
          .vector = parts[1].view({-1, kScalars, kVectors}),
          .tensor = parts[2].view({-1, kScalars, kTensors})};
}

Paths paths_down(const at::Tensor& weights) {
  const auto parts = weights.split_with_sizes({kScalars * kScalars, kVectors * kScalars, kTensors * kScalars}, 1);
  return {.scalar = parts[0].view({-1, kScalars, kScalars}),
          .vector = parts[1].view({-1, kVectors, kScalars}),
          .tensor = parts[2].view({-1, kTensors, kScalars})};
}

// x [e, in], weights [e, in, out] -> [e, out]
at::Tensor apply_weights(const at::Tensor& x, const at::Tensor& weights) {
  return at::bmm(x.unsqueeze(1), weights.to(x.scalar_type())).squeeze(1);
}

// 64 scalars -> 64 scalars, 8 vectors, 8 tensors. Each path has 64 inputs.
Irreps product_up(const at::Tensor& scalars, const Harmonics& edge, const Paths& paths) {
  const double path = 1 / std::sqrt(static_cast<double>(kScalars));
  return {.scalars = path * apply_weights(scalars, paths.scalar) * edge.scalar,
          .vectors = path * apply_weights(scalars, paths.vector).unsqueeze(-1) * edge.vector.unsqueeze(1),
          .tensors = path * apply_weights(scalars, paths.tensor).unsqueeze(-1) * edge.tensor.unsqueeze(1)};
}

// 64 scalars, 8 vectors, 8 tensors -> 64 scalars. The paths have 80 inputs in total.
at::Tensor product_down(const Irreps& x, const Harmonics& edge, const Paths& paths) {
  const double path = 1 / std::sqrt(static_cast<double>(kScalars + kVectors + kTensors));
  const at::Tensor along_vector = (x.vectors * edge.vector.unsqueeze(1)).sum(-1) / std::sqrt(3.0);
  const at::Tensor along_tensor = (x.tensors * edge.tensor.unsqueeze(1)).sum(-1) / std::sqrt(5.0);
  return path * (apply_weights(x.scalars, paths.scalar) * edge.scalar + apply_weights(along_vector, paths.vector) +
                 apply_weights(along_tensor, paths.tensor));
}

}  // namespace

PathWeights::PathWeights(int64_t edge_width, int64_t weights, int64_t outputs)
    : outputs_(outputs),
      layers_(register_module("fc", std::make_shared<Mlp>(edge_width, edge_width, weights, softplus))) {}

std::map<std::string, at::Tensor> PathWeights::constant_buffers() const {
  return {{"tp.weight", at::zeros({0})}, {"tp.output_mask", at::ones({outputs_})}};
}

at::Tensor PathWeights::forward(const at::Tensor& edges) { return layers_->forward(edges); }

EquivariantUpdate::EquivariantUpdate(int64_t width, int64_t edge_width)
    : node_(register_module("node_linear", Linear(width, kScalars))),
      skip_(register_module("skip_linear", Linear(width, width))),
      up_(register_module(
          "nlayer_1", std::make_shared<PathWeights>(edge_width, kPathWeights, kScalars + 3 * kVectors + 5 * kTensors))),
      down_(register_module("nlayer_2", std::make_shared<PathWeights>(edge_width, kPathWeights, kScalars))),
      norm_(register_module("bn", BatchNorm1d(kScalars))),
      out_(register_module("node_linear_2", Linear(kScalars, width))) {}

// The original computes the mean over the edges that start at a node. Because each edge has a reverse, this is the mean
// over the edges that end at the node, with reversed vectors. These are contiguous, so their mean is deterministic.
at::Tensor EquivariantUpdate::forward(const at::Tensor& x, const at::Tensor& edges, const CrystalBatch& batch) {
  const at::Tensor from = batch.edge_index[0];
  const at::Tensor harmonics = spherical_harmonics(-batch.edge_vectors);
  const Harmonics edge{
      .scalar = harmonics.narrow(1, 0, 1), .vector = harmonics.narrow(1, 1, 3), .tensor = harmonics.narrow(1, 4, 5)};
  const auto mean = [&](const at::Tensor& messages) { return segment_mean(messages, batch.edge_begin); };

  const at::Tensor scalars = node_->forward(x);
  const Irreps messages = product_up(scalars.index_select(0, from), edge, paths_up(up_->forward(edges)));
  const Irreps nodes{.scalars = scalars + mean(messages.scalars),
                     .vectors = mean(messages.vectors),
                     .tensors = mean(messages.tensors)};
  const Irreps sources{.scalars = nodes.scalars.index_select(0, from),
                       .vectors = nodes.vectors.index_select(0, from),
                       .tensors = nodes.tensors.index_select(0, from)};
  const at::Tensor back = mean(product_down(sources, edge, paths_down(down_->forward(edges))));
  return at::softplus(out_->forward(at::softplus(norm_->forward(back)))) + skip_->forward(x);
}

// ---- Models ------------------------------------------------------------------------------------------------------

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
