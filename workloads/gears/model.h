// The GEARS model, which predicts the expression of a cell after genes of it are perturbed, its layers and its loss.
// Source: gears/model.py of cell-gears 0.1.2 (Roohani, Huang, Leskovec, Nature Biotechnology 2023). Parameters have its
// names, order and shapes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/batch_norm.h"
#include "workloads/gears/config.h"

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

// The graphs of the data; tensors are on the CPU.
struct GearsGraphs {
  int64_t genes = 0;
  int64_t perturbations = 0;  // number of genes that can be perturbed
  GraphEdges coexpression;    // between genes
  GraphEdges ontology;        // between perturbations
};

struct GearsOutput {
  at::Tensor expression;    // [cells, genes]
  at::Tensor log_variance;  // [cells, genes]; undefined without uncertainty
};

class GearsModel final : public torch::nn::Module {
 public:
  // Initialized by torch's default generator.
  GearsModel(const GearsConfig& config, const GearsGraphs& graphs);

  // `expression` [cells, genes] is the expression before the perturbation. `perturbed` int64 [cells, k] has the indices
  // of the perturbed genes; -1 means none.
  GearsOutput forward(const at::Tensor& expression, const at::Tensor& perturbed);

  // Renormalizes the embeddings in place, which the original does in forward(). Must be called before a forward pass in
  // training.
  void renormalize_embeddings();

 private:
  // Moves a graph to the device and type of the states, once.
  static const Propagation& placed(Propagation& graph, const at::Tensor& states);
  at::Tensor gene_states(int64_t cells);  // [cells, genes, hidden], equal for all cells unless original_defects is set
  at::Tensor coexpression_states(int64_t copies);  // [copies * genes, hidden]
  at::Tensor perturbation_states();                // [perturbations, hidden]
  at::Tensor add_perturbations(const at::Tensor& genes, const at::Tensor& perturbed);
  at::Tensor decode(const at::Tensor& states, int64_t cells);

  GearsConfig config_;
  int64_t genes_;
  std::shared_ptr<BoundedEmbedding> gene_emb_;
  std::shared_ptr<BoundedEmbedding> pert_emb_;
  std::shared_ptr<GearsMlp> emb_trans_v2_;
  std::shared_ptr<GearsMlp> pert_fuse_;
  std::shared_ptr<BoundedEmbedding> emb_pos_;
  std::vector<std::shared_ptr<GraphConvolution>> layers_emb_pos_;
  std::vector<std::shared_ptr<GraphConvolution>> sim_layers_;
  std::shared_ptr<GearsMlp> recovery_w_;
  at::Tensor indv_w1_;
  at::Tensor indv_b1_;
  std::shared_ptr<GearsMlp> cross_gene_state_;
  at::Tensor indv_w2_;
  at::Tensor indv_b2_;
  BatchNorm1d bn_emb_;
  BatchNorm1d bn_pert_base_;
  std::shared_ptr<GearsMlp> uncertainty_w_;
  Propagation coexpression_;
  Propagation ontology_;
};

struct GearsTruth {
  at::Tensor expression;  // [cells, genes]
  at::Tensor condition;   // int64 [cells], in [0, conditions)
};

// Constants of the data.
struct GearsReference {
  at::Tensor control;  // [genes], the mean of the control cells
  at::Tensor
      counted;  // [conditions, genes], 1 if the gene counts for the condition, otherwise 0; at least one 1 per row
};

// Returns the loss of loss_fct() and uncertainty_loss_fct() (gears/utils.py), autofocus with an exponent of 4 and
// direction: the mean over the distinct conditions of the batch of the mean over their cells and counted genes of
//   (prediction - truth)^4 * (1 + uncertainty_reg * exp(-log variance))      without uncertainty: the first factor
//   + direction_lambda * (sign(truth - control) - sign(prediction - control))^2
// The second line has no gradient.
at::Tensor gears_loss(const GearsLossConfig& config, const GearsOutput& output, const GearsTruth& truth,
                      const GearsReference& reference);

}  // namespace oarlock::gears
