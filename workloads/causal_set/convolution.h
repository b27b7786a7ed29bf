// Graph convolutions for graphs without edge weights. Numerics, options, parameter names and initial values are those
// of torch_geometric 2.8 (torch_geometric/nn/conv/{gcn,gat,sage,graph}_conv.py).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "workloads/causal_set/config.h"

namespace oarlock::causal_set {

// The edges of one graph or of a batch of graphs, sorted by destination, as GraphCollation creates them.
struct GraphEdges {
  at::Tensor source;       // int64 [edges]
  at::Tensor destination;  // int64 [edges], ascending
  at::Tensor begin;        // int64 [nodes + 1]: the first edge of each destination
};

class Convolution : public torch::nn::Module {
 public:
  // x [nodes, in] -> [nodes, out]
  virtual at::Tensor forward(const at::Tensor& x, const GraphEdges& edges) = 0;
};

// `out` is the width of the output; for gat with concat it must be a multiple of heads. Initialized by torch's default
// generator.
std::shared_ptr<Convolution> make_convolution(const ConvolutionConfig& config, int64_t in, int64_t out);

// Reduces rows [n, ...] to [groups, ...]. Group i consists of the rows begin[i] .. begin[i + 1] - 1.
at::Tensor reduce_segments(Reduction reduction, const at::Tensor& rows, const at::Tensor& begin);

}  // namespace oarlock::causal_set
