// iComFormer and eComFormer (Yan et al., Complete and Efficient Graph Transformers for Crystal Material Property
// Prediction, ICLR 2024, https://arxiv.org/abs/2403.11857), which predict one or several numbers per crystal.
// Parameters have the names, the order and the shapes of the authors' program.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ddp/batch_norm.h"
#include "trainer/nn/mlp.h"
#include "trainer/nn/module_tensors.h"
#include "workloads/comformer/config.h"

namespace oarlock::comformer {

// A batch of g crystals with n atoms and e edges. Edges are sorted by destination, and the reverse of each edge is
// among them, as by crystal_graph() and GraphCollation.
struct CrystalBatch {
  at::Tensor atoms;         // [n, atom features]
  at::Tensor edge_index;    // int64 [2, e]: source, destination
  at::Tensor edge_begin;    // int64 [n + 1]: the first edge to each atom
  at::Tensor edge_vectors;  // [e, 3], from source to destination, angstrom
  at::Tensor lattices;      // [g, 3, 3], rows are lattice_vectors()
  at::Tensor crystal_of;    // int64 [n]
  at::Tensor atom_begin;    // int64 [g + 1]: the first atom of each crystal
};

struct BasisOptions {
  double first = -4;  // the first center
  double last = 0;    // the last center
  int64_t bins = 256;
  int64_t width = 256;  // of the output
};

// Embeds numbers by Gaussians with equally spaced centers and a linear layer:
// softplus(linear(exp(-gamma (x - center)^2))), gamma = 1 / spacing (not squared, as in the original). The linear layer
// is named 1, because it is the second of three modules in the original's Sequential.
class BasisEmbedding final : public torch::nn::Module, public ConstantBuffers {
 public:
  explicit BasisEmbedding(const BasisOptions& options);
  std::map<std::string, at::Tensor> constant_buffers() const override;
  // [...] -> [..., width]
  at::Tensor forward(const at::Tensor& x);

 private:
  BasisOptions options_;
  torch::nn::Linear linear_;
};

// Returns -0.75 / |v|, [..., 3] -> [...], which is how lengths in angstrom enter the basis.
at::Tensor inverse_lengths(const at::Tensor& vectors);

// The inputs of a gated message from j to i, each [..., width]: queries, keys and values of both ends, and the features
// of the edge between them.
struct GatedMessage {
  at::Tensor query;
  at::Tensor key_to;
  at::Tensor key_from;
  at::Tensor value_to;
  at::Tensor value_from;
  at::Tensor between;
};

// Returns message([v_i, v_j, e]) * sigmoid(batch_norm(q_i * key([k_i, k_j, e]) / sqrt(width))). There is no softmax:
// the weight of a message does not depend on the other messages.
at::Tensor gated_message(const GatedMessage& parts, Mlp& message, Mlp& key, BatchNorm1dImpl& norm);

// The node-wise transformer layer.
class ComformerConvolution final : public torch::nn::Module {
 public:
  explicit ComformerConvolution(int64_t width);
  // x [n, width], edges [e, width] -> [n, width]: softplus(x + batch_norm(linear(sum of the messages)))
  at::Tensor forward(const at::Tensor& x, const at::Tensor& edges, const CrystalBatch& batch);

 private:
  torch::nn::Linear key_;
  torch::nn::Linear query_;
  torch::nn::Linear value_;
  torch::nn::Linear edge_;
  torch::nn::Linear combine_;
  std::shared_ptr<Mlp> message_;
  std::shared_ptr<Mlp> key_update_;
  BatchNorm1d norm_;
  BatchNorm1d gate_norm_;
};

// The edge-wise transformer layer of iComFormer: messages from the three lattice vectors to each edge.
class EdgeUpdate final : public torch::nn::Module {
 public:
  explicit EdgeUpdate(int64_t width);
  // edges [e, width]; lengths [g, 3, width], of the lattice vectors of each crystal; crystal_of_edge int64 [e]; angles
  // [e, 3, width], between each edge and each lattice vector -> [e, width]
  at::Tensor forward(const at::Tensor& edges, const at::Tensor& lengths, const at::Tensor& crystal_of_edge,
                     const at::Tensor& angles);

 private:
  struct Lattice {
    torch::nn::Linear key;
    torch::nn::Linear value;
  };

  Lattice lattice_layers(int64_t vector, int64_t width);

  // The original declares the unused layers, too. They get no gradient.
  torch::nn::Embedding unused_embedding_;
  torch::nn::Linear key_;
  torch::nn::Linear query_;
  torch::nn::Linear value_;
  std::array<Lattice, 3> lattice_;
  torch::nn::Linear angle_;
  torch::nn::Linear unused_length_;
  torch::nn::Linear combine_;
  std::shared_ptr<Mlp> message_;
  std::shared_ptr<Mlp> key_update_;
  BatchNorm1d gate_norm_;
  BatchNorm1d norm_;
};

// ---- Equivariant -----------------------------------------------------------------------------------------------
// The equivariant layer of eComFormer: node features become scalars (l = 0), vectors (l = 1) and l = 2 tensors, and are
// reduced to scalars again. Because input and output are scalars, the tensor products are products and dot products
// with the spherical harmonics of the edges. Their coefficients are those of e3nn's FullyConnectedTensorProduct: path
// weight / sqrt(2 l + 1).

// Returns the real spherical harmonics up to l = 2 of the directions of vectors, [e, 3] -> [e, 9]: l = 0, then l = 1 as
// x, y, z, then l = 2 as xz, xy, y^2 - (x^2 + z^2) / 2, yz, (z^2 - x^2) / 2, normalized so that the squares of each l
// sum to 2 l + 1. Order and normalization ("component") are those of e3nn (https://docs.e3nn.org,
// o3.spherical_harmonics).
at::Tensor spherical_harmonics(const at::Tensor& vectors);

// The weights of a tensor product as a function of the edge features. Parameters: fc.0, fc.2.
class PathWeights final : public torch::nn::Module, public ConstantBuffers {
 public:
  // `outputs` is the width of the result of the product.
  PathWeights(int64_t edge_width, int64_t weights, int64_t outputs);
  std::map<std::string, at::Tensor> constant_buffers() const override;
  at::Tensor forward(const at::Tensor& edges);  // [e, edge width] -> [e, weights]

 private:
  int64_t outputs_;
  std::shared_ptr<Mlp> layers_;
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
