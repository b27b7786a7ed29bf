#include "trainer/tasks/comformer/model/edge_update.h"

#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "trainer/tasks/comformer/model/convolution.h"

namespace oarlock {
namespace {

using torch::nn::Linear;

constexpr int64_t kUnusedWidth = 32;

// [g, 3, width], a layer for each of the three vectors -> [g, 3, width]
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
      message_(register_module("lin_msg_update", std::make_shared<TwoLayers>(3 * width, width, width, at::silu))),
      key_update_(register_module("key_update", std::make_shared<TwoLayers>(3 * width, width, width, at::silu))),
      gate_norm_(register_module("bn_att", BatchNorm1d(width))),
      norm_(register_module("bn", BatchNorm1d(width))) {}

at::Tensor EdgeUpdate::forward(const at::Tensor& edges, const at::Tensor& lengths, const at::Tensor& crystal_of_edge,
                               const at::Tensor& angles) {
  const auto for_each_vector = [&](const at::Tensor& of_edge) { return of_edge.unsqueeze(1).expand_as(angles); };
  // The lattice of a crystal is that of all its edges: its layers are computed once.
  const auto of_lattice = [&](auto member) {
    return each_vector(lengths, [&](size_t vector) { return lattice_[vector].*member; })
        .index_select(0, crystal_of_edge);
  };
  const at::Tensor messages = gated({.query = for_each_vector(query_->forward(edges)),
                                     .key_to = for_each_vector(key_->forward(edges)),
                                     .key_from = of_lattice(&Lattice::key),
                                     .value_to = for_each_vector(value_->forward(edges)),
                                     .value_from = of_lattice(&Lattice::value),
                                     .between = angle_->forward(angles)},
                                    *message_, *key_update_, *gate_norm_);
  return at::softplus(edges + norm_->forward(combine_->forward(messages).sum(1)));
}

}  // namespace oarlock
