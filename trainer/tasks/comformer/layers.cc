#include "trainer/tasks/comformer/layers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <cmath>

#include "trainer/nn/scatter.h"

namespace oarlock::comformer {

using torch::nn::Linear;

BasisEmbedding::BasisEmbedding(const BasisOptions& options)
    : options_(options), linear_(register_module("1", torch::nn::Linear(options.bins, options.width))) {}

at::Tensor BasisEmbedding::forward(const at::Tensor& x) {
  const at::Tensor centers = at::linspace(options_.first, options_.last, options_.bins, x.options());
  const double spacing = (options_.last - options_.first) / static_cast<double>(options_.bins - 1);
  const at::Tensor gaussians = (-(x.unsqueeze(-1) - centers).square() / spacing).exp();
  return at::softplus(linear_->forward(gaussians));
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

}  // namespace oarlock::comformer
