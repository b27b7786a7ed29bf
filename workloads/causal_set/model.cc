#include "workloads/causal_set/model.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>

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

namespace {

double total(const at::Tensor& values) { return values.to(at::kDouble).sum().item<double>(); }

void add_counts(const std::string& name, const at::Tensor& classes, int64_t count, MetricSums& sums) {
  const at::Tensor counts = at::bincount(classes, {}, count).cpu();
  for (int64_t c = 0; c < count; ++c) sums[fmt::format("{}.{}", name, c)] = counts[c].item<double>();
}

void add_class_sums(const std::string& name, const at::Tensor& outputs, const at::Tensor& targets, MetricSums& sums) {
  const at::Tensor predicted = outputs.argmax(1);
  const at::Tensor wanted = targets.flatten().to(at::kLong);
  const int64_t classes = outputs.size(1);
  add_counts(name + ".predicted", predicted, classes, sums);
  add_counts(name + ".wanted", wanted, classes, sums);
  add_counts(name + ".hit", predicted.masked_select(predicted.eq(wanted)), classes, sums);
}

double value_of(const MetricSums& sums, const std::string& name) {
  const auto found = sums.find(name);
  return found == sums.end() ? 0 : found->second;
}

void add_class_metrics(const std::string& name, const MetricSums& totals, Metrics& metrics) {
  double hits = 0;
  double f1 = 0;
  double occurring = 0;
  for (int c = 0; totals.contains(fmt::format("{}.hit.{}", name, c)); ++c) {
    const double hit = totals.at(fmt::format("{}.hit.{}", name, c));
    const double both =
        totals.at(fmt::format("{}.predicted.{}", name, c)) + totals.at(fmt::format("{}.wanted.{}", name, c));
    hits += hit;
    if (both == 0) continue;
    f1 += 2 * hit / both;
    ++occurring;
  }
  metrics[name + "_accuracy"] = hits / totals.at("count");
  metrics[name + "_f1"] = f1 / std::max(occurring, 1.0);
}

}  // namespace

at::Tensor sample_losses(LossKind kind, const at::Tensor& outputs, const at::Tensor& targets) {
  const at::Tensor values = outputs.to(at::kFloat);
  if (kind == LossKind::kCrossEntropy)
    return at::cross_entropy_loss(values, targets.flatten().to(at::kLong), {}, at::Reduction::None);
  const at::Tensor wanted = targets.to(at::kFloat);
  switch (kind) {
    case LossKind::kL1:
      return at::l1_loss(values, wanted, at::Reduction::None).mean(1);
    case LossKind::kSmoothL1:
      return at::smooth_l1_loss(values, wanted, at::Reduction::None).mean(1);
    case LossKind::kBce:
      return at::binary_cross_entropy_with_logits(values, wanted, {}, {}, at::Reduction::None).mean(1);
    default:
      return at::mse_loss(values, wanted, at::Reduction::None).mean(1);
  }
}

void add_sums(const std::string& name, LossKind kind, const at::Tensor& losses, const at::Tensor& outputs,
              const at::Tensor& targets, MetricSums& sums) {
  const at::Tensor exact = losses.to(at::kDouble);
  sums[name + ".loss"] = total(exact);
  sums[name + ".loss2"] = total(exact.square());
  if (!outputs.defined()) return;
  if (kind == LossKind::kCrossEntropy) return add_class_sums(name, outputs, targets, sums);
  if (kind == LossKind::kBce) {
    sums[name + ".correct"] = total(outputs.gt(0).eq(targets.gt(0.5)).to(at::kDouble).mean(1));
    return;
  }
  const at::Tensor difference = outputs.to(at::kDouble) - targets.to(at::kDouble);
  sums[name + ".absolute"] = total(difference.abs().mean(1));
  sums[name + ".squared"] = total(difference.square().mean(1));
}

std::vector<std::string> metric_names(const std::string& name, LossKind kind) {
  const std::string prefix = name.empty() ? "" : name + "_";
  std::vector<std::string> names = {prefix + "loss", prefix + "loss_std"};
  if (name.empty()) return names;
  if (kind == LossKind::kCrossEntropy) {
    names.insert(names.end(), {prefix + "accuracy", prefix + "f1"});
  } else if (kind == LossKind::kBce) {
    names.push_back(prefix + "accuracy");
  } else {
    names.insert(names.end(), {prefix + "mae", prefix + "rmse"});
  }
  return names;
}

void add_metrics(const std::string& name, LossKind kind, const MetricSums& totals, Metrics& metrics) {
  const double count = totals.at("count");
  const double mean = totals.at(name + ".loss") / count;
  const std::string prefix = name.empty() ? "" : name + "_";
  metrics[prefix + "loss"] = mean;
  metrics[prefix + "loss_std"] = std::sqrt(std::max(totals.at(name + ".loss2") / count - mean * mean, 0.0));
  if (name.empty()) return;
  if (kind == LossKind::kCrossEntropy) return add_class_metrics(name, totals, metrics);
  if (kind == LossKind::kBce) {
    metrics[prefix + "accuracy"] = value_of(totals, name + ".correct") / count;
    return;
  }
  metrics[prefix + "mae"] = value_of(totals, name + ".absolute") / count;
  metrics[prefix + "rmse"] = std::sqrt(value_of(totals, name + ".squared") / count);
}

}  // namespace oarlock::causal_set
