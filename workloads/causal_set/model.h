// QuantumGrav's network and the losses of its heads. The network has blocks over the nodes, concatenated poolings of
// each graph (and features of the graph as a whole), and a small network per task. Parameters have the names of the
// original: encoder.blocks.N.*, downstream_tasks.N.layers.M.*, graph_features_net.layers.M.*.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp/batch_norm.h"
#include "trainer/engine/task.h"
#include "workloads/causal_set/config.h"
#include "workloads/causal_set/convolution.h"

namespace oarlock::causal_set {

at::Tensor activate(Activation activation, const at::Tensor& x);

// Convolution, normalization, activation, skip connection, dropout. Parameters: normalizer.*, conv.*, skip.proj.weight.
class GraphBlock final : public torch::nn::Module {
 public:
  GraphBlock(const BlockConfig& config, int64_t in);

  // x [nodes, in] -> [nodes, config.out]
  at::Tensor forward(const at::Tensor& x, const GraphEdges& edges);

 private:
  BlockConfig config_;
  BatchNorm1d normalizer_{nullptr};
  std::shared_ptr<Convolution> conv_;
  torch::nn::Linear projection_{nullptr};
};

// The linear layers are named layers.0, layers.2 ..., because activations are counted, too.
class LinearLayers final : public torch::nn::Module {
 public:
  LinearLayers(int64_t in, const LayersConfig& config, int64_t out);
  at::Tensor forward(const at::Tensor& x);

 private:
  Activation activation_;
  std::vector<torch::nn::Linear> layers_;
};

struct GraphInput {
  at::Tensor x;  // float [nodes, features]
  GraphEdges edges;
  at::Tensor begin;           // int64 [graphs + 1]: the first node of each graph
  at::Tensor graph_features;  // float [graphs, features]; undefined if the data have none
};

class GnnModel final : public torch::nn::Module {
 public:
  // Initialized by torch's default generator.
  GnnModel(const GnnConfig& config, int64_t node_features, int64_t graph_features);

  // Returns the pooled features of each graph, [graphs, features].
  at::Tensor embed(const GraphInput& input);
  // Returns the outputs of each head, [graphs, outputs]; undefined for inactive heads.
  std::vector<at::Tensor> forward(const GraphInput& input);

 private:
  GnnConfig config_;
  std::vector<std::shared_ptr<GraphBlock>> blocks_;
  std::vector<std::shared_ptr<LinearLayers>> heads_;
  std::shared_ptr<LinearLayers> graph_features_net_;
};

// ---- Losses and their evaluation metrics -----------------------------------------------------------------------

// Returns the loss of each sample, float [n], from outputs [n, width] and targets [n, width] (cross entropy: class
// indices [n, 1]). Several outputs are averaged.
at::Tensor sample_losses(LossKind kind, const at::Tensor& outputs, const at::Tensor& targets);

// add_sums() adds the sums of a batch, whose names start with `name`; add_metrics() computes metrics from their totals:
//   all losses       NAME_loss, NAME_loss_std (over the samples)
//   cross entropy    NAME_accuracy, NAME_f1 (mean over the classes that occur)
//   bce              NAME_accuracy (over samples and outputs)
//   other losses     NAME_mae, NAME_rmse
// With an empty name, they add only loss and loss_std.
void add_sums(const std::string& name, LossKind kind, const at::Tensor& losses, const at::Tensor& outputs,
              const at::Tensor& targets, MetricSums& sums);
void add_metrics(const std::string& name, LossKind kind, const MetricSums& totals, Metrics& metrics);
// Returns the names of the metrics that add_metrics() adds.
std::vector<std::string> metric_names(const std::string& name, LossKind kind);

}  // namespace oarlock::causal_set
