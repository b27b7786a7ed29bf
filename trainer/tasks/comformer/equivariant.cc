#include "trainer/tasks/comformer/equivariant.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "trainer/nn/scatter.h"

namespace oarlock::comformer {

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

using torch::nn::Linear;

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

PathWeights::PathWeights(int64_t edge_width, int64_t weights)
    : layers_(register_module("fc", std::make_shared<Mlp>(edge_width, edge_width, weights, softplus))) {}

at::Tensor PathWeights::forward(const at::Tensor& edges) { return layers_->forward(edges); }

EquivariantUpdate::EquivariantUpdate(int64_t width, int64_t edge_width)
    : node_(register_module("node_linear", Linear(width, kScalars))),
      skip_(register_module("skip_linear", Linear(width, width))),
      up_(register_module("nlayer_1", std::make_shared<PathWeights>(edge_width, kPathWeights))),
      down_(register_module("nlayer_2", std::make_shared<PathWeights>(edge_width, kPathWeights))),
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

}  // namespace oarlock::comformer
