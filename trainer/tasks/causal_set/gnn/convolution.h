// Graph convolutions with the mathematics, options, parameter names and initial values of torch_geometric 2.8
// (torch_geometric/nn/conv/{gcn,gat,sage,graph}_conv.py), for graphs without edge weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trainer/config/fields.h"

namespace oarlock {

enum class ConvolutionKind { kGcn, kGat, kSage, kGraphConv };
enum class Reduction { kMean, kMax, kSum };

// The edges of one graph or of a batch of them, sorted by destination; as GraphCollation makes them.
struct GraphEdges {
  at::Tensor source;       // int64 [edges]
  at::Tensor destination;  // int64 [edges], not descending
  at::Tensor begin;        // int64 [nodes + 1]: where the edges to each node begin
};

struct ConvolutionConfig {
  ConvolutionKind kind = ConvolutionKind::kGcn;
  bool bias = true;
  bool add_self_loops = true;              // gcn, gat: each node gets one edge to itself, whatever there is already
  bool normalize = true;                   // gcn: by the degrees; sage: output rows to length 1
  Reduction aggregate = Reduction::kMean;  // sage, graphconv
  bool root_weight = true;                 // sage: a weight of the node itself
  bool project = false;                    // sage: a linear layer before the aggregation
  int64_t heads = 1;                       // gat
  bool concat = true;                      // gat: the heads beside each other, or their mean
  double negative_slope = 0.2;             // gat
  double attention_dropout = 0;            // gat
};

// Names the fields of a convolution, its kind (key "conv") first.
void describe(ConvolutionConfig& config, Fields& fields);

class Convolution : public torch::nn::Module {
 public:
  // x [nodes, in] -> [nodes, out]
  virtual at::Tensor forward(const at::Tensor& x, const GraphEdges& edges) = 0;
};

// `out`: width of what comes out; with gat and concat a multiple of heads. Initialised by torch's default generator.
std::shared_ptr<Convolution> make_convolution(const ConvolutionConfig& config, int64_t in, int64_t out);

// rows [n, ...], cut into groups by `begin` [groups + 1] -> [groups, ...].
at::Tensor reduce_segments(Reduction reduction, const at::Tensor& rows, const at::Tensor& begin);

}  // namespace oarlock
