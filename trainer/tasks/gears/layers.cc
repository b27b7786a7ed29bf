#include "trainer/tasks/gears/layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <string>

#include "trainer/nn/scatter.h"

namespace oarlock::gears {

GearsMlp::GearsMlp(const std::vector<int64_t>& sizes) : torch::nn::Module("MLP") {
  const auto network = std::make_shared<torch::nn::Module>("Sequential");
  constexpr size_t kLayersOfAStage = 3;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const size_t at = i * kLayersOfAStage;
    linears_.push_back(network->register_module(std::to_string(at), torch::nn::Linear(sizes[i], sizes[i + 1])));
    norms_.push_back(network->register_module(std::to_string(at + 1), BatchNorm1d(sizes[i + 1])));
  }
  register_module("network", network);
}

at::Tensor GearsMlp::forward(const at::Tensor& input, int64_t repeats) {
  at::Tensor x = input;
  for (size_t i = 0; i < linears_.size(); ++i) {
    if (i > 0) x = at::relu(x);
    x = norms_[i]->forward_repeated(linears_[i]->forward(x), repeats);
  }
  return x;
}

BoundedEmbedding::BoundedEmbedding(int64_t rows, int64_t width)
    : torch::nn::Module("Embedding"), weight_(register_parameter("weight", at::randn({rows, width}))) {}

at::Tensor BoundedEmbedding::factors() const {
  constexpr double kMaxNorm = 1;
  constexpr double kRenormEpsilon = 1e-7;  // of at::embedding_renorm_
  const at::NoGradGuard no_grad;
  const at::Tensor norm = weight_.norm(2, /*dim=*/1, /*keepdim=*/true);
  return at::where(norm > kMaxNorm, kMaxNorm / (norm + kRenormEpsilon), at::ones({}, norm.options()));
}

at::Tensor BoundedEmbedding::forward() const { return weight_ * factors(); }

void BoundedEmbedding::renormalize() {
  const at::NoGradGuard no_grad;
  weight_.mul_(factors());
}

Propagation normalized_graph(const GraphEdges& edges, int64_t nodes) {
  const at::Tensor is_loop = edges.source == edges.target;
  const at::Tensor keep = is_loop.logical_not();
  // An existing self-loop keeps its weight and moves to the end with the added ones.
  at::Tensor loop_weight = at::ones({nodes}, edges.weight.options());
  loop_weight.index_put_({edges.target.masked_select(is_loop)}, edges.weight.masked_select(is_loop));
  const at::Tensor all = at::arange(nodes, edges.source.options());
  at::Tensor source = at::cat({edges.source.masked_select(keep), all});
  at::Tensor target = at::cat({edges.target.masked_select(keep), all});
  at::Tensor weight = at::cat({edges.weight.masked_select(keep), loop_weight});

  const at::Tensor order = std::get<1>(target.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  source = source.index_select(0, order);
  target = target.index_select(0, order);
  weight = weight.index_select(0, order);
  const at::Tensor inverse_root = scatter_sum(weight, target, nodes).pow(-0.5);  // self-loops have a positive weight
  weight = inverse_root.index_select(0, source) * weight * inverse_root.index_select(0, target);
  const at::Tensor begin =
      at::cat({at::zeros({1}, target.options()), at::bincount(target, {}, nodes).cumsum(0).to(at::kLong)});
  return {.source = source, .weight = weight.unsqueeze(1), .begin = begin};
}

GraphConvolution::GraphConvolution(int64_t width)
    : torch::nn::Module("SGConv"), linear_(register_module("lin", torch::nn::Linear(width, width))) {}

at::Tensor GraphConvolution::forward(const at::Tensor& input, const Propagation& graph) {
  return linear_->forward(segment_sum(input.index_select(0, graph.source) * graph.weight, graph.begin));
}

}  // namespace oarlock::gears
