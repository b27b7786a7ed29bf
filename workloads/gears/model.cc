#include "workloads/gears/model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

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

namespace {

constexpr double kPositionShare = 0.2;  // of the co-expression states; the original's constant

std::vector<std::shared_ptr<GraphConvolution>> register_convolutions(torch::nn::Module& owner, const char* name,
                                                                     int64_t count, int64_t width) {
  const auto list = std::make_shared<torch::nn::Module>("ModuleList");
  std::vector<std::shared_ptr<GraphConvolution>> layers;
  for (int64_t i = 0; i < count; ++i) {
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<GraphConvolution>(width)));
  }
  owner.register_module(name, list);
  return layers;
}

at::Tensor xavier(at::IntArrayRef sizes) { return torch::nn::init::xavier_normal_(at::empty(sizes)); }

// Applies the layers with ReLU between them.
template <typename Apply>
at::Tensor apply_layers(const std::vector<std::shared_ptr<GraphConvolution>>& layers, at::Tensor x, Apply apply) {
  for (size_t i = 0; i < layers.size(); ++i) {
    x = apply(*layers[i], x);
    if (i + 1 < layers.size()) x = at::relu(x);
  }
  return x;
}

// Returns a zero that depends on the parameters. It gives a zero gradient to parameters that no output of this step
// depends on, because DDP waits for the gradients of all parameters.
at::Tensor zero_of(const std::vector<at::Tensor>& parameters, const at::Tensor& like) {
  at::Tensor zero = at::zeros({}, like.options());
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) zero = zero + parameter.sum() * 0;
  }
  return zero;
}

}  // namespace

GearsModel::GearsModel(const GearsConfig& config, const GearsGraphs& graphs)
    : torch::nn::Module("GEARS_Model"),
      config_(config),
      genes_(graphs.genes),
      bn_emb_(nullptr),
      bn_pert_base_(nullptr) {
  const int64_t h = config.hidden_size;
  // Not used by the original's forward(), but part of its checkpoints.
  const auto pert_w = register_module("pert_w", torch::nn::Linear(1, h));
  gene_emb_ = register_module("gene_emb", std::make_shared<BoundedEmbedding>(genes_, h));
  pert_emb_ = register_module("pert_emb", std::make_shared<BoundedEmbedding>(graphs.perturbations, h));
  emb_trans_v2_ = register_module("emb_trans_v2", std::make_shared<GearsMlp>(std::vector{h, h, h}));
  pert_fuse_ = register_module("pert_fuse", std::make_shared<GearsMlp>(std::vector{h, h, h}));
  emb_pos_ = register_module("emb_pos", std::make_shared<BoundedEmbedding>(genes_, h));
  layers_emb_pos_ = register_convolutions(*this, "layers_emb_pos", config.num_gene_gnn_layers, h);
  sim_layers_ = register_convolutions(*this, "sim_layers", config.num_go_gnn_layers, h);
  recovery_w_ = register_module("recovery_w", std::make_shared<GearsMlp>(std::vector{h, 2 * h, h}));
  indv_w1_ = register_parameter("indv_w1", xavier({genes_, h, 1}));
  indv_b1_ = register_parameter("indv_b1", xavier({genes_, 1}));
  cross_gene_state_ = register_module("cross_gene_state", std::make_shared<GearsMlp>(std::vector{genes_, h, h}));
  indv_w2_ = register_parameter("indv_w2", xavier({1, genes_, h + 1}));
  indv_b2_ = register_parameter("indv_b2", xavier({1, genes_}));
  bn_emb_ = register_module("bn_emb", BatchNorm1d(h));
  bn_pert_base_ = register_module("bn_pert_base", BatchNorm1d(h));
  const auto bn_pert_base_trans = register_module("bn_pert_base_trans", BatchNorm1d(h));
  if (config.uncertainty) {
    uncertainty_w_ = register_module("uncertainty_w", std::make_shared<GearsMlp>(std::vector<int64_t>{h, 2 * h, h, 1}));
  }
  for (at::Tensor& parameter : pert_w->parameters()) parameter.set_requires_grad(false);
  for (at::Tensor& parameter : bn_pert_base_trans->parameters()) parameter.set_requires_grad(false);
  coexpression_ = normalized_graph(graphs.coexpression, genes_);
  ontology_ = normalized_graph(graphs.ontology, graphs.perturbations);
}

const Propagation& GearsModel::placed(Propagation& graph, const at::Tensor& states) {
  const bool is_there = graph.weight.device() == states.device() && graph.weight.scalar_type() == states.scalar_type();
  if (!is_there) {
    graph = {.source = graph.source.to(states.device()),
             .weight = graph.weight.to(states.options().requires_grad(false)),
             .begin = graph.begin.to(states.device())};
  }
  return graph;
}

void GearsModel::renormalize_embeddings() {
  for (BoundedEmbedding* embedding : {gene_emb_.get(), pert_emb_.get(), emb_pos_.get()}) embedding->renormalize();
}

GearsOutput GearsModel::forward(const at::Tensor& expression, const at::Tensor& perturbed) {
  if (config_.no_perturb) {
    const at::Tensor same = at::GradMode::is_enabled() ? expression + zero_of(parameters(), expression) : expression;
    return {.expression = same, .log_variance = config_.uncertainty ? same * 0 : at::Tensor()};
  }
  const int64_t cells = expression.size(0);
  at::Tensor states = add_perturbations(gene_states(cells), perturbed);
  states = at::relu(bn_pert_base_->forward(states.reshape({cells * genes_, config_.hidden_size})));
  const at::Tensor log_variance =
      config_.uncertainty ? uncertainty_w_->forward(states).view({cells, genes_}) : at::Tensor();
  return {.expression = decode(states, cells) + expression, .log_variance = log_variance};
}

// All cells start with the same states, which are computed once. Only original_defects makes a difference between the
// first cell and the others. As in the original, the running statistics count the rows of all cells.
at::Tensor GearsModel::gene_states(int64_t cells) {
  const int64_t copies = config_.original_defects ? cells : 1;
  const int64_t repeats = cells / copies;
  const at::Tensor own = at::relu(bn_emb_->forward_repeated(gene_emb_->forward().repeat({copies, 1}), repeats));
  const at::Tensor states = emb_trans_v2_->forward(own + kPositionShare * coexpression_states(copies), repeats);
  return states.view({copies, genes_, config_.hidden_size}).expand({cells, genes_, config_.hidden_size});
}

at::Tensor GearsModel::coexpression_states(int64_t copies) {
  const at::Tensor start = emb_pos_->forward();
  const Propagation& graph = placed(coexpression_, start);
  const at::Tensor first = apply_layers(
      layers_emb_pos_, start, [&](GraphConvolution& layer, const at::Tensor& x) { return layer.forward(x, graph); });
  if (copies == 1) return first;
  const at::Tensor others = apply_layers(
      layers_emb_pos_, start, [](GraphConvolution& layer, const at::Tensor& x) { return layer.forward_isolated(x); });
  return at::cat({first, others.repeat({copies - 1, 1})});
}

at::Tensor GearsModel::perturbation_states() {
  const at::Tensor start = pert_emb_->forward();
  const Propagation& graph = placed(ontology_, start);
  return apply_layers(sim_layers_, start,
                      [&](GraphConvolution& layer, const at::Tensor& x) { return layer.forward(x, graph); });
}

// Adds the fused sum of the states of a cell's perturbed genes to the states of all its genes.
at::Tensor GearsModel::add_perturbations(const at::Tensor& genes, const at::Tensor& perturbed) {
  const at::Tensor global = perturbation_states();
  const at::Tensor named = perturbed.ge(0);
  const at::Tensor rows = global.index_select(0, perturbed.clamp_min(0).flatten()) * named.flatten().unsqueeze(1);
  const at::Tensor sums = rows.view({perturbed.size(0), perturbed.size(1), -1}).sum(1);
  const at::Tensor cells = named.any(1).nonzero().squeeze(1);
  at::Tensor summed = sums.index_select(0, cells);

  const bool alone = is_training() && !pert_fuse_->is_synchronized();
  if (summed.size(0) == 0 && (alone || !is_training())) {
    if (!is_training()) return genes;
    return genes + zero_of(pert_fuse_->parameters(), genes) + global.sum() * 0;
  }
  // Batch statistics need two rows. With two equal rows the output is the last bias, and there is no gradient, as in
  // the original.
  if (summed.size(0) == 1 && alone) summed = summed.repeat({2, 1});
  const at::Tensor fused = pert_fuse_->forward(summed).slice(0, 0, cells.size(0));
  const at::Tensor added = at::zeros({perturbed.size(0), fused.size(1)}, fused.options()).index_add(0, cells, fused);
  return genes + added.unsqueeze(1);
}

// [cells * genes, hidden] -> the change of each gene, [cells, genes]. Each gene has its own layer, followed by another
// one whose input includes the states of all genes of the cell.
at::Tensor GearsModel::decode(const at::Tensor& states, int64_t cells) {
  const at::Tensor recovered = recovery_w_->forward(states).view({cells, genes_, config_.hidden_size});
  const at::Tensor own = (recovered * indv_w1_.squeeze(2)).sum(2) + indv_b1_.squeeze(1);
  const at::Tensor cross = cross_gene_state_->forward(own);
  const at::Tensor weights = indv_w2_.squeeze(0);  // [genes, 1 + hidden]
  return own * weights.select(1, 0) + cross.matmul(weights.slice(1, 1).t()) + indv_b2_;
}

at::Tensor gears_loss(const GearsLossConfig& config, const GearsOutput& output, const GearsTruth& truth,
                      const GearsReference& reference) {
  const at::Tensor& prediction = output.expression;
  at::Tensor error = (prediction - truth.expression).pow(4);
  if (output.log_variance.defined()) {
    error = error + config.uncertainty_reg * (-output.log_variance).exp() * error;
  }
  const at::Tensor direction =
      ((truth.expression - reference.control).sign() - (prediction - reference.control).sign()).pow(2);
  const at::Tensor counted = reference.counted.index_select(0, truth.condition).to(error.scalar_type());
  const at::Tensor of_cell = ((error + config.direction_lambda * direction) * counted).sum(1) / counted.sum(1);

  const at::Tensor cells = at::bincount(truth.condition, {}, reference.counted.size(0));
  const at::Tensor conditions = cells.gt(0).sum();
  return (of_cell / cells.index_select(0, truth.condition)).sum() / conditions;
}

}  // namespace oarlock::gears
