// The GEARS model: what a cell becomes when genes of it are perturbed. Source: gears/model.py of cell-gears 0.1.2
// (Roohani, Huang, Leskovec, Nature Biotechnology 2023); parameters have its names, order and shapes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/config/fields.h"
#include "trainer/tasks/gears/model/layers.h"

namespace oarlock {

// The section "model"; the names are those of GEARS.model_initialize().
struct GearsConfig {
  int64_t hidden_size = 64;
  int64_t num_go_gnn_layers = 1;
  int64_t num_gene_gnn_layers = 1;
  int64_t decoder_hidden_size = 16;  // in the original without effect, too
  bool uncertainty = false;
  bool no_perturb = false;
  bool original_defects = false;
};

void describe(GearsConfig& config, Fields& fields);

// Of the data; tensors on the CPU.
struct GearsGraphs {
  int64_t genes = 0;
  int64_t perturbations = 0;  // genes that can be perturbed
  GraphEdges coexpression;    // between genes
  GraphEdges ontology;        // between perturbations
};

struct GearsOutput {
  at::Tensor expression;    // [cells, genes]
  at::Tensor log_variance;  // [cells, genes]; undefined without uncertainty
};

class GearsModel final : public torch::nn::Module {
 public:
  // Initialised by torch's default generator.
  GearsModel(const GearsConfig& config, const GearsGraphs& graphs);

  // `expression` [cells, genes] before the perturbation; `perturbed` int64 [cells, k]: numbers of perturbed genes, -1
  // where there is none.
  GearsOutput forward(const at::Tensor& expression, const at::Tensor& perturbed);

  // What the original's embeddings do in forward(): rows longer than 1 are shortened in place. To be called before a
  // forward pass that trains.
  void shorten_embeddings();

 private:
  // The graph on the device of the states and in their type, where it stays.
  static const Propagation& placed(Propagation& graph, const at::Tensor& states);
  at::Tensor gene_states(int64_t cells);   // [cells, genes, hidden], the same for every cell but for original_defects
  at::Tensor coexpressed(int64_t copies);  // [copies * genes, hidden]
  at::Tensor perturbation_states();        // [perturbations, hidden]
  at::Tensor perturbed_states(const at::Tensor& genes, const at::Tensor& perturbed);
  at::Tensor decoded(const at::Tensor& states, int64_t cells);

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

}  // namespace oarlock
