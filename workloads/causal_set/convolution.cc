#include "workloads/causal_set/convolution.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>

#include "trainer/nn/scatter.h"

namespace oarlock::causal_set {

namespace {

torch::nn::Linear make_linear(int64_t in, int64_t out, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

// torch_geometric/nn/inits.py: the bound depends on the last two sizes.
void glorot(const at::Tensor& tensor) {
  const auto fans = static_cast<double>(tensor.size(-2) + tensor.size(-1));
  const double bound = std::sqrt(6 / fans);
  torch::nn::init::uniform_(tensor, -bound, bound);
}

torch::nn::Linear make_glorot_linear(int64_t in, int64_t out) {
  torch::nn::Linear linear = make_linear(in, out, false);
  glorot(linear->weight);
  return linear;
}

class GcnConvolution final : public Convolution {
 public:
  GcnConvolution(const ConvolutionConfig& config, int64_t in, int64_t out) : config_(config) {
    if (config.bias) bias_ = register_parameter("bias", at::zeros({out}));
    lin_ = register_module("lin", make_glorot_linear(in, out));
  }

  // The sum over a node and its predecessors, each weighted by 1 / sqrt(product of both degrees).
  at::Tensor forward(const at::Tensor& x, const GraphEdges& edges) override {
    const at::Tensor own = lin_->forward(x);
    at::Tensor messages = own.index_select(0, edges.source);
    at::Tensor out;
    if (config_.normalize) {
      const at::Tensor weight = edge_weight(edges, x);
      const at::Tensor scale = inverse_roots(weight, edges);
      const at::Tensor factor = scale.index_select(0, edges.source) * weight * scale.index_select(0, edges.destination);
      out = segment_sum(factor.unsqueeze(-1) * messages, edges.begin);
      if (config_.add_self_loops) out = out + scale.square().unsqueeze(-1) * own;
    } else {
      out = segment_sum(messages, edges.begin);
    }
    return bias_.defined() ? out + bias_ : out;
  }

 private:
  // Existing self-loops have weight 0, because they are replaced by the added ones.
  at::Tensor edge_weight(const GraphEdges& edges, const at::Tensor& x) const {
    if (config_.add_self_loops) return edges.source.ne(edges.destination).to(x.scalar_type());
    return at::ones_like(edges.source, x.options());
  }

  at::Tensor inverse_roots(const at::Tensor& weight, const GraphEdges& edges) const {
    const at::Tensor in_edges = segment_sum(weight, edges.begin);
    const at::Tensor degree = config_.add_self_loops ? in_edges + 1 : in_edges;
    return degree.pow(-0.5).masked_fill(degree.eq(0), 0);
  }

  ConvolutionConfig config_;
  at::Tensor bias_;
  torch::nn::Linear lin_{nullptr};
};

class GatConvolution final : public Convolution {
 public:
  GatConvolution(const ConvolutionConfig& config, int64_t in, int64_t out)
      : config_(config), width_(config.concat ? out / config.heads : out) {
    att_src_ = register_parameter("att_src", at::empty({1, config.heads, width_}));
    att_dst_ = register_parameter("att_dst", at::empty({1, config.heads, width_}));
    if (config.bias) bias_ = register_parameter("bias", at::zeros({out}));
    lin_ = register_module("lin", make_glorot_linear(in, config.heads * width_));
    glorot(att_src_);
    glorot(att_dst_);
  }

  at::Tensor forward(const at::Tensor& x, const GraphEdges& edges) override {
    const at::Tensor own = lin_->forward(x).view({-1, config_.heads, width_});
    at::Tensor source = edges.source;
    at::Tensor destination = edges.destination;
    if (config_.add_self_loops) {
      const at::Tensor nodes = at::arange(x.size(0), source.options());
      source = at::cat({source, nodes});
      destination = at::cat({destination, nodes});
    }
    const at::Tensor attention = attention_of(own, source, destination, edges);
    const at::Tensor messages = attention.unsqueeze(-1) * own.index_select(0, source);
    const at::Tensor sums = scatter_sum(messages, destination, x.size(0));
    const at::Tensor out = config_.concat ? sums.flatten(1) : sums.mean(1);
    return bias_.defined() ? out + bias_ : out;
  }

 private:
  // Returns [edges, heads]. The weights of the edges of a node sum to 1.
  at::Tensor attention_of(const at::Tensor& own, const at::Tensor& source, const at::Tensor& destination,
                          const GraphEdges& edges) const {
    const at::Tensor of_source = (own * att_src_).sum(-1);
    const at::Tensor of_destination = (own * att_dst_).sum(-1);
    at::Tensor scores = at::leaky_relu(of_source.index_select(0, source) + of_destination.index_select(0, destination),
                                       config_.negative_slope);
    if (config_.add_self_loops) {  // existing self-loops are replaced by the added ones
      const at::Tensor loops = edges.source.eq(edges.destination);
      const at::Tensor replaced = at::cat({loops, at::zeros({own.size(0)}, loops.options())});
      scores = scores.masked_fill(replaced.unsqueeze(-1), -std::numeric_limits<double>::infinity());
    }
    const at::Tensor weights = segment_softmax(scores, destination, own.size(0));
    return at::dropout(weights, config_.attention_dropout, is_training());
  }

  ConvolutionConfig config_;
  int64_t width_;  // of a head
  at::Tensor att_src_;
  at::Tensor att_dst_;
  at::Tensor bias_;
  torch::nn::Linear lin_{nullptr};
};

class SageConvolution final : public Convolution {
 public:
  SageConvolution(const ConvolutionConfig& config, int64_t in, int64_t out) : config_(config) {
    if (config.project) lin_ = register_module("lin", make_linear(in, in, true));
    lin_l_ = register_module("lin_l", make_linear(in, out, config.bias));
    if (config.root_weight) lin_r_ = register_module("lin_r", make_linear(in, out, false));
  }

  at::Tensor forward(const at::Tensor& x, const GraphEdges& edges) override {
    const at::Tensor projected = config_.project ? lin_->forward(x).relu() : x;
    const at::Tensor messages = projected.index_select(0, edges.source);
    at::Tensor out = lin_l_->forward(reduce_segments(config_.aggregate, messages, edges.begin));
    if (config_.root_weight) out = out + lin_r_->forward(x);
    if (!config_.normalize) return out;
    return torch::nn::functional::normalize(out, torch::nn::functional::NormalizeFuncOptions().p(2).dim(-1));
  }

 private:
  ConvolutionConfig config_;
  torch::nn::Linear lin_{nullptr};
  torch::nn::Linear lin_l_{nullptr};
  torch::nn::Linear lin_r_{nullptr};
};

class GraphConvolution final : public Convolution {
 public:
  GraphConvolution(const ConvolutionConfig& config, int64_t in, int64_t out)
      : aggregate_(config.aggregate),
        lin_rel_(register_module("lin_rel", make_linear(in, out, config.bias))),
        lin_root_(register_module("lin_root", make_linear(in, out, false))) {}

  at::Tensor forward(const at::Tensor& x, const GraphEdges& edges) override {
    const at::Tensor messages = x.index_select(0, edges.source);
    return lin_rel_->forward(reduce_segments(aggregate_, messages, edges.begin)) + lin_root_->forward(x);
  }

 private:
  Reduction aggregate_;
  torch::nn::Linear lin_rel_;
  torch::nn::Linear lin_root_;
};

}  // namespace

std::shared_ptr<Convolution> make_convolution(const ConvolutionConfig& config, int64_t in, int64_t out) {
  switch (config.kind) {
    case ConvolutionKind::kGcn:
      return std::make_shared<GcnConvolution>(config, in, out);
    case ConvolutionKind::kGat:
      return std::make_shared<GatConvolution>(config, in, out);
    case ConvolutionKind::kSage:
      return std::make_shared<SageConvolution>(config, in, out);
    case ConvolutionKind::kGraphConv:
      return std::make_shared<GraphConvolution>(config, in, out);
  }
  return nullptr;
}

at::Tensor reduce_segments(Reduction reduction, const at::Tensor& rows, const at::Tensor& begin) {
  switch (reduction) {
    case Reduction::kMean:
      return segment_mean(rows, begin);
    case Reduction::kMax:
      return segment_max(rows, begin);
    case Reduction::kSum:
      return segment_sum(rows, begin);
  }
  return {};
}

}  // namespace oarlock::causal_set
