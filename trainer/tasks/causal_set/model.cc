#include "trainer/tasks/causal_set/model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

namespace oarlock::causal_set {

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kRelu:
      return x.relu();
    case Activation::kElu:
      return at::elu(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kTanh:
      return x.tanh();
    case Activation::kIdentity:
      return x;
  }
  return {};
}

GraphBlock::GraphBlock(const BlockConfig& config, int64_t in) : config_(config) {
  if (config.normalizer == Normalizer::kBatchNorm) normalizer_ = register_module("normalizer", BatchNorm1d(config.out));
  conv_ = register_module("conv", make_convolution(config.convolution, in, config.out));
  if (config.skip && in != config.out) {
    const auto skip = register_module("skip", std::make_shared<torch::nn::Module>());
    projection_ =
        skip->register_module("proj", torch::nn::Linear(torch::nn::LinearOptions(in, config.out).bias(false)));
  }
}

at::Tensor GraphBlock::forward(const at::Tensor& x, const GraphEdges& edges) {
  at::Tensor out = conv_->forward(x, edges);
  if (normalizer_) out = normalizer_->forward(out);
  out = activate(config_.activation, out);
  if (config_.skip) out = out + (projection_ ? projection_->forward(x) : x);
  return at::dropout(out, config_.dropout, is_training());
}

LinearLayers::LinearLayers(int64_t in, const LayersConfig& config, int64_t out) : activation_(config.activation) {
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  std::vector<int64_t> widths = config.hidden;
  widths.push_back(out);
  for (size_t i = 0; i < widths.size(); ++i) {
    layers_.push_back(layers->register_module(fmt::format("{}", 2 * i), torch::nn::Linear(in, widths[i])));
    in = widths[i];
  }
}

at::Tensor LinearLayers::forward(const at::Tensor& x) {
  at::Tensor out = layers_.front()->forward(x);
  for (size_t i = 1; i < layers_.size(); ++i) out = layers_[i]->forward(activate(activation_, out));
  return out;
}

GnnModel::GnnModel(const GnnConfig& config, int64_t node_features, int64_t graph_features) : config_(config) {
  const auto encoder = register_module("encoder", std::make_shared<torch::nn::Module>());
  torch::nn::ModuleList blocks = encoder->register_module("blocks", torch::nn::ModuleList());
  int64_t width = node_features;
  for (const BlockConfig& block : config.blocks) {
    blocks_.push_back(std::make_shared<GraphBlock>(block, width));
    blocks->push_back(blocks_.back());
    width = block.out;
  }
  width *= static_cast<int64_t>(config.pooling.size());
  const bool has_net = graph_features > 0 && config.graph_features_out > 0;
  width += has_net ? config.graph_features_out : graph_features;
  torch::nn::ModuleList heads = register_module("downstream_tasks", torch::nn::ModuleList());
  for (const HeadConfig& head : config.heads) {
    heads_.push_back(std::make_shared<LinearLayers>(width, head.layers, head.outputs));
    heads->push_back(heads_.back());
    if (head.active) continue;
    for (at::Tensor& parameter : heads_.back()->parameters()) parameter.set_requires_grad(false);
  }
  if (has_net) {
    graph_features_net_ = register_module(
        "graph_features_net",
        std::make_shared<LinearLayers>(graph_features, config.graph_features, config.graph_features_out));
  }
}

at::Tensor GnnModel::embed(const GraphInput& input) {
  at::Tensor x = input.x;
  for (const auto& block : blocks_) x = block->forward(x, input.edges);
  std::vector<at::Tensor> pooled;
  for (const Reduction pooling : config_.pooling) pooled.push_back(reduce_segments(pooling, x, input.begin));
  return at::cat(pooled, 1);
}

std::vector<at::Tensor> GnnModel::forward(const GraphInput& input) {
  at::Tensor graphs = embed(input);
  if (input.graph_features.defined()) {
    const at::Tensor features =
        graph_features_net_ ? graph_features_net_->forward(input.graph_features) : input.graph_features;
    graphs = at::cat({graphs, features}, 1);
  }
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < heads_.size(); ++i)
    out.push_back(config_.heads[i].active ? heads_[i]->forward(graphs) : at::Tensor());
  return out;
}

}  // namespace oarlock::causal_set
