// The GEARS model, which predicts the expression of a cell after genes of it are perturbed, and its loss. Source:
// gears/model.py of cell-gears 0.1.2 (Roohani, Huang, Leskovec, Nature Biotechnology 2023). Parameters have its names,
// order and shapes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/tasks/gears/config.h"
#include "trainer/tasks/gears/layers.h"

namespace oarlock::gears {

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
