// The layers of the GEARS model (gears/model.py of cell-gears 0.1.2), with its parameter names.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <vector>

#include "trainer/nn/batch_norm.h"

namespace oarlock::gears {

// Linear, BatchNorm and ReLU for each pair of sizes, without the last ReLU. Parameters have the names of a Sequential:
// network.0.weight ...
class GearsMlp final : public torch::nn::Module {
 public:
  explicit GearsMlp(const std::vector<int64_t>& sizes);
  // [n, sizes.front()] -> [n, sizes.back()]. The input represents `repeats` copies of itself
  // (BatchNorm::forward_repeated()).
  at::Tensor forward(const at::Tensor& input, int64_t repeats = 1);
  // Whether the statistics in training are computed over the rows of all ranks.
  bool is_synchronized() const { return norms_.front()->is_synchronized(); }

 private:
  std::vector<torch::nn::Linear> linears_;
  std::vector<BatchNorm1d> norms_;
};

// torch.nn.Embedding(rows, width, max_norm=1), which renormalizes rows with a norm above 1 in forward(), in place. Here
// reading and writing are separate, because a checkpoint may be reading the parameter.
class BoundedEmbedding final : public torch::nn::Module {
 public:
  BoundedEmbedding(int64_t rows, int64_t width);

  // Returns all rows, [rows, width], with norms of at most 1. The gradient treats the scaling as constant, which it is
  // after renormalize().
  at::Tensor forward() const;

  // Renormalizes the parameter in place.
  void renormalize();

 private:
  at::Tensor factors() const;  // [rows, 1], at most 1

  at::Tensor weight_;
};

// Weighted edges between nodes.
struct GraphEdges {
  at::Tensor source;  // int64 [edges]
  at::Tensor target;  // int64 [edges]
  at::Tensor weight;  // float [edges]
};

// The propagation matrix of SGConv, sorted by target.
struct Propagation {
  at::Tensor source;  // int64 [edges]
  at::Tensor weight;  // float [edges, 1]
  at::Tensor begin;   // int64 [nodes + 1]: target i has the edges begin[i] .. begin[i + 1] - 1
};

// torch_geometric.nn.conv.gcn_conv.gcn_norm with add_remaining_self_loops: adds self-loops of weight 1 to nodes without
// one, then normalizes to D^-1/2 A D^-1/2 with the degrees of the targets. `edges` must be on the CPU.
Propagation normalized_graph(const GraphEdges& edges, int64_t nodes);

// SGConv with K = 1: propagation, then Linear. Parameters: lin.weight, lin.bias.
class GraphConvolution final : public torch::nn::Module {
 public:
  explicit GraphConvolution(int64_t width);

  // [nodes, width] -> [nodes, width]
  at::Tensor forward(const at::Tensor& input, const Propagation& graph);
  // The same for nodes without edges, whose self-loop has the weight 1.
  at::Tensor forward_isolated(const at::Tensor& input) { return linear_->forward(input); }

 private:
  torch::nn::Linear linear_;
};

}  // namespace oarlock::gears
