#include "workloads/gears/config.h"

#include <algorithm>
#include <initializer_list>

#include "trainer/config/limits.h"

namespace oarlock::gears {
namespace {

constexpr double kMaxGenes = 1e6;
constexpr double kMaxControlCells = 1e6;

const Names<SplitKind> kSplitKinds{
    {"simulation", SplitKind::kSimulation},  {"simulation_single", SplitKind::kSimulationSingle},
    {"combo_seen0", SplitKind::kComboSeen0}, {"combo_seen1", SplitKind::kComboSeen1},
    {"combo_seen2", SplitKind::kComboSeen2}, {"single", SplitKind::kSingle},
    {"no_test", SplitKind::kNoTest},         {"no_split", SplitKind::kNoSplit},
    {"custom", SplitKind::kCustom}};

void describe(GearsDataConfig& config, Fields& fields) {
  fields.field("path", config.path, "AnnData file (.h5ad) with obs/condition, such as GEARS' perturb_processed.h5ad");
  fields.require("path");
  fields.field("cache", config.cache, "directory of the files computed from the data; empty: next to the file");
  describe(config.split, fields);
  fields.field("gene2go", config.gene2go,
               R"(JSON file with the gene ontology terms of each gene: {"GENE": ["GO:...", ...], ...})");
  fields.field("go_graph", config.go_graph, "CSV source,target,importance, used instead of the graph from gene2go");
  fields.field("gene_set_path", config.gene_set_path,
               "file of genes that can be perturbed, one per line; empty: the genes of the data");
  fields.field("coexpress_graph", config.coexpress_graph,
               "CSV source,target,importance, used instead of the co-expression of the training cells");
  fields.field("test_batch_size", config.test_batch_size, from_to(1, kMaxBatchSize),
               "cells per batch in evaluation and prediction");
  for (const char* key : {"path", "cache"}) fields.scope(key, Scope::kRank);
  for (const char* key : {"gene2go", "go_graph", "gene_set_path", "coexpress_graph"})
    fields.scope(key, Scope::kPresence);
}

void describe(GearsGraphConfig& config, Fields& fields) {
  fields.field("num_similar_genes_go_graph", config.num_similar_genes_go_graph, from_to(0, kMaxGenes),
               "number of most similar genes by the ontology, to which a gene is connected");
  fields.field("num_similar_genes_co_express_graph", config.coexpression.similar, from_to(0, kMaxGenes),
               "number of most co-expressed genes, to which a gene is connected");
  fields.field("coexpress_threshold", config.coexpression.threshold, from_to(0, 1),
               "correlation above which genes are co-expressed");
}

void describe(GearsTestConfig& config, Fields& fields) {
  fields.field("file", config.file, "CSV with the metrics of each condition and of the mean baseline");
  fields.field("predictions_file", config.predictions_file, "CSV with the predicted mean expression of each condition");
  for (const char* key : {"file", "predictions_file"}) fields.scope(key, Scope::kRank);
}

void describe(GearsPredictConfig& config, Fields& fields) {
  fields.field("perturbations", config.perturbations,
               "genes, or pairs such as AHR+FEV, whose effect is predicted at the end of the run");
  fields.field("file", config.file, "CSV with the predicted mean expression of each perturbation");
  if (!config.perturbations.empty()) fields.require("file");
  fields.field("control_cells", config.control_cells, from_to(1, kMaxControlCells),
               "number of control cells over which a prediction is averaged");
  fields.field("interactions", config.interactions, "pairs whose genetic interaction is scored at the end of the run");
  fields.field("interactions_file", config.interactions_file, "CSV with the scores of the interactions");
  if (!config.interactions.empty()) fields.require("interactions_file");
  fields.field("interaction_genes", config.interaction_genes,
               "file of genes used for the scores, one per line; empty: all");
  for (const char* key : {"file", "interactions_file", "interaction_genes"}) fields.scope(key, Scope::kRank);
}

}  // namespace

std::string_view name_of(SplitKind kind) {
  return std::find_if(kSplitKinds.begin(), kSplitKinds.end(), [&](const auto& entry) { return entry.second == kind; })
      ->first;
}

void describe(GearsTaskConfig& config, Fields& root) {
  root.section("data", [&](Fields& fields) { describe(config.data, fields); }, "perturbed cells, as AnnData");
  root.section(
      "model",
      [&](Fields& fields) {
        describe(config.model, fields);
        describe(config.graphs, fields);
        describe(config.loss, config.model.uncertainty, fields);
      },
      "graph networks over co-expressed genes and the gene ontology (GEARS)");
  root.section(
      "test", [&](Fields& fields) { describe(config.test, fields); },
      "the test set, evaluated with the best checkpoint's weights");
  root.section(
      "predict", [&](Fields& fields) { describe(config.predict, fields); }, "predictions of unseen perturbations");
}

void describe(SplitConfig& config, Fields& fields) {
  using enum SplitKind;
  const auto is = [&](std::initializer_list<SplitKind> kinds) {
    return std::find(kinds.begin(), kinds.end(), config.kind) != kinds.end();
  };
  fields.choice("split", config.kind, kSplitKinds,
                "how the held-out perturbations are selected, as in GEARS' prepare_split()");
  fields.field("seed", config.seed, from_to(0, UINT32_MAX), "seed of the split and of the selection of control cells");
  fields.field("train_gene_set_size", config.train_gene_set_size, from_to(0, 1),
               "simulation: share of the perturbed genes that are for training");
  fields.field("combo_seen2_train_frac", config.combo_seen2_train_frac, from_to(0, 1),
               "simulation: share of the combinations of two training genes that are for training");
  fields.field("combo_single_split_test_set_fraction", config.combo_single_split_test_set_fraction, from_to(0, 1),
               "single, combo_seen0 to combo_seen2: share of the genes or combinations in the test set");
  fields.field("test_perts", config.test_perts, "genes (simulation) or conditions (combo_seen2) in the test set");
  fields.only_if("test_perts", is({kSimulation, kSimulationSingle, kComboSeen2}),
                 "belongs to the splits simulation, simulation_single and combo_seen2");
  fields.field("only_test_set_perts", config.only_test_set_perts, "simulation: the test set contains only test_perts");
  fields.only_if("only_test_set_perts", is({kSimulation, kSimulationSingle}), "belongs to simulation");
  fields.field("test_pert_genes", config.test_pert_genes,
               "single, combo_seen0, combo_seen1: genes in the test set, instead of randomly selected ones");
  fields.only_if("test_pert_genes", is({kSingle, kComboSeen0, kComboSeen1}),
                 "belongs to the splits single, combo_seen0 and combo_seen1");
  fields.field("split_dict_path", config.split_dict_path,
               R"(custom: JSON file of the split: {"train": [...], "val": [...], "test": [...]})");
  fields.scope("split_dict_path", Scope::kRank);
  fields.only_if("split_dict_path", is({kCustom}), "belongs to the split custom");
  if (is({kCustom})) fields.require("split_dict_path");
}

void describe(GearsConfig& config, Fields& fields) {
  fields.field("hidden_size", config.hidden_size, from_to(1, kMaxLayerWidth), "width of the embeddings");
  fields.field("num_go_gnn_layers", config.num_go_gnn_layers, from_to(0, kMaxLayers),
               "number of graph convolutions over the gene ontology");
  fields.field("num_gene_gnn_layers", config.num_gene_gnn_layers, from_to(0, kMaxLayers),
               "number of graph convolutions over co-expressed genes");
  fields.field("decoder_hidden_size", config.decoder_hidden_size, from_to(1, kMaxLayerWidth),
               "ignored, as in GEARS itself");
  fields.field("uncertainty", config.uncertainty, "also predict a variance of each gene");
  fields.field("no_perturb", config.no_perturb, "return the input unchanged: the baseline that a model must surpass");
  fields.field("original_defects", config.original_defects,
               "apply co-expression to the first cell of a batch only, as in cell-gears 0.1.2");
}

void describe(GearsLossConfig& config, bool uncertainty, Fields& fields) {
  fields.field("direction_lambda", config.direction_lambda, at_least(0),
               "weight of the error in the direction of the change");
  fields.field("uncertainty_reg", config.uncertainty_reg, at_least(0),
               "uncertainty: weight of the error divided by the predicted variance");
  fields.only_if("uncertainty_reg", uncertainty, "needs model.uncertainty: true");
}

}  // namespace oarlock::gears
