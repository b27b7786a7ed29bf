// QuantumGrav's network: blocks over the nodes, poolings of each graph beside each other (and features of the graph as
// a whole), and a small network for each task. Names of parameters are the original's: encoder.blocks.N.*,
// downstream_tasks.N.layers.M.*, graph_features_net.layers.M.*.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/tasks/causal_set/gnn/block.h"

namespace oarlock {

// Linear layers with an activation between them, none behind the last.
struct LayersConfig {
  std::vector<int64_t> hidden;
  Activation activation = Activation::kRelu;
};

// The linear layers are layers.0, layers.2 ...: the activations count, too.
class LinearLayers final : public torch::nn::Module {
 public:
  LinearLayers(int64_t in, const LayersConfig& config, int64_t out);
  at::Tensor forward(const at::Tensor& x);

 private:
  Activation activation_;
  std::vector<torch::nn::Linear> layers_;
};

struct HeadConfig {
  LayersConfig layers;
  int64_t outputs = 2;
  bool active = true;  // an inactive one keeps its weights, gives nothing and learns nothing
};

struct GnnConfig {
  std::vector<BlockConfig> blocks;
  std::vector<Reduction> pooling{Reduction::kMean};
  LayersConfig graph_features;     // where the data have features of graphs
  int64_t graph_features_out = 0;  // 0: they are used as they are
  std::vector<HeadConfig> heads;
};

struct GraphInput {
  at::Tensor x;  // float [nodes, features]
  GraphEdges edges;
  at::Tensor begin;           // int64 [graphs + 1]: where the nodes of each graph begin
  at::Tensor graph_features;  // float [graphs, features]; undefined where there are none
};

class GnnModel final : public torch::nn::Module {
 public:
  // Initialised by torch's default generator.
  GnnModel(const GnnConfig& config, int64_t node_features, int64_t graph_features);

  // [graphs, pooled features]
  at::Tensor embed(const GraphInput& input);
  // For each head [graphs, outputs]; undefined where it is inactive.
  std::vector<at::Tensor> forward(const GraphInput& input);

 private:
  GnnConfig config_;
  std::vector<std::shared_ptr<GraphBlock>> blocks_;
  std::vector<std::shared_ptr<LinearLayers>> heads_;
  std::shared_ptr<LinearLayers> graph_features_net_;
};

}  // namespace oarlock
