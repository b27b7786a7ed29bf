// The parts of the GEARS model (gears/model.py of cell-gears 0.1.2), with its parameter names.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

#include "trainer/nn/batch_norm.h"

namespace oarlock {

// Linear, BatchNorm, ReLU for each pair of sizes, without the last ReLU: the last BatchNorm stays. The names are those
// of a Sequential: network.0.weight ...
class GearsMlp final : public torch::nn::Module {
 public:
  explicit GearsMlp(const std::vector<int64_t>& sizes);
  // [n, sizes.front()] -> [n, sizes.back()]
  // The input stands for `repeats` copies of itself (BatchNorm::forward_repeated()).
  at::Tensor forward(const at::Tensor& input, int64_t repeats = 1);
  // Whether the statistics in training are those of all ranks' rows.
  bool synchronized() const { return norms_.front()->synchronized(); }

 private:
  std::vector<torch::nn::Linear> linears_;
  std::vector<BatchNorm1d> norms_;
};

// torch.nn.Embedding(rows, width, max_norm=1), whose forward shortens the rows that are longer than 1, in place. Here
// writing and reading are apart, for a checkpoint may be reading the parameter.
class BoundedEmbedding final : public torch::nn::Module {
 public:
  BoundedEmbedding(int64_t rows, int64_t width);

  // All rows, [rows, width], none longer than 1. The gradient takes the shortening for a constant, which it is where
  // shorten() was called before.
  at::Tensor forward() const;

  // In place.
  void shorten();

 private:
  at::Tensor factors() const;  // [rows, 1], at most 1

  at::Tensor weight_;
};

// Edges between nodes, from source to target, with weights; on the model's device.
struct GraphEdges {
  at::Tensor source;  // int64 [edges]
  at::Tensor target;  // int64 [edges]
  at::Tensor weight;  // float [edges]
};

// The propagation matrix of SGConv (torch_geometric.nn.conv.gcn_conv.gcn_norm, add_remaining_self_loops): self-loops of
// weight 1 where a node has none, then D^-1/2 A D^-1/2 with the degrees of the targets. Sorted by target. `edges` are
// on the CPU.
struct Propagation {
  at::Tensor source;  // int64 [edges]
  at::Tensor weight;  // float [edges, 1]
  at::Tensor begin;   // int64 [nodes + 1]: target i has the edges from begin[i] to before begin[i + 1]
};
Propagation normalized_graph(const GraphEdges& edges, int64_t nodes);

// SGConv with K = 1: propagate, then Linear. lin.weight, lin.bias.
class GraphConvolution final : public torch::nn::Module {
 public:
  explicit GraphConvolution(int64_t width);

  // [nodes, width] -> [nodes, width]
  at::Tensor forward(const at::Tensor& input, const Propagation& graph);
  // The same of nodes without edges, to which the self-loop alone gives a weight of 1.
  at::Tensor forward_isolated(const at::Tensor& input) { return linear_->forward(input); }

 private:
  torch::nn::Linear linear_;
};

}  // namespace oarlock
