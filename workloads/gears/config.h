// The configuration of the task gears. The keys have the names of cell-gears: those of GEARS.model_initialize() are in
// the section "model", those of PertData.prepare_split() in "data".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fields/fields.h"

namespace oarlock::gears {

enum class SplitKind {
  kSimulation,        // genes are held out, together with every condition that contains them
  kSimulationSingle,  // the same for single perturbations; combinations are unused
  kComboSeen0,        // combinations of two unseen genes
  kComboSeen1,        // combinations of one seen and one unseen gene
  kComboSeen2,        // combinations of two seen genes
  kSingle,            // single perturbations
  kNoTest,            // no test set
  kNoSplit,           // all conditions are in the test set
  kCustom,            // read from a JSON file
};

struct SplitConfig {
  SplitKind kind = SplitKind::kSimulation;
  int64_t seed = 1;
  double train_gene_set_size = 0.75;
  double combo_seen2_train_frac = 0.75;
  double combo_single_split_test_set_fraction = 0.1;
  std::vector<std::string> test_perts{};       // simulation: genes to test; combo_seen2: conditions to test
  bool only_test_set_perts = false;            // simulation: test no other genes
  std::vector<std::string> test_pert_genes{};  // combo_seen0 and combo_seen1: used instead of drawn genes
  std::string split_dict_path{};               // custom: {"train": [...], "val": [...], "test": [...]}
};

// Returns the name of a split in the configuration.
std::string_view name_of(SplitKind kind);

// The section "data".
struct GearsDataConfig {
  std::string path;   // h5ad
  std::string cache;  // empty: next to the file
  SplitConfig split;
  std::string gene2go;          // JSON: the ontology terms of each gene
  std::string go_graph;         // CSV, used instead of the graph computed from gene2go
  std::string gene_set_path;    // genes that can be perturbed, one per line; empty: the genes of the data
  std::string coexpress_graph;  // CSV, used instead of the co-expression of the training cells
  int64_t test_batch_size = 128;
};

struct CoexpressionOptions {
  double threshold = 0.4;  // of the correlation
  int64_t similar = 20;    // largest number of sources per target, in addition to the target itself
};

// The construction of the graphs; keys of the section "model".
struct GearsGraphConfig {
  int64_t num_similar_genes_go_graph = 20;
  CoexpressionOptions coexpression;
};

// The model; keys of the section "model".
struct GearsConfig {
  int64_t hidden_size = 64;
  int64_t num_go_gnn_layers = 1;
  int64_t num_gene_gnn_layers = 1;
  int64_t decoder_hidden_size = 16;  // ignored, as in the original
  bool uncertainty = false;
  bool no_perturb = false;
  bool original_defects = false;
};

// The loss; keys of the section "model".
struct GearsLossConfig {
  double direction_lambda = 0.1;
  double uncertainty_reg = 1;
};

// The section "test".
struct GearsTestConfig {
  std::string file;              // CSV with a line per condition
  std::string predictions_file;  // CSV with the predicted mean expression of each condition
};

// The section "predict".
struct GearsPredictConfig {
  std::vector<std::string> perturbations;  // "AHR", "AHR+FEV"
  std::string file;
  int64_t control_cells = 300;
  std::vector<std::string> interactions;  // "AHR+FEV"
  std::string interactions_file;
  std::string interaction_genes;  // file with a gene per line; empty: all genes
};

struct GearsTaskConfig {
  GearsDataConfig data;
  GearsConfig model;
  GearsGraphConfig graphs;
  GearsLossConfig loss;
  GearsTestConfig test;
  GearsPredictConfig predict;
};

// Describes all sections of the task.
void describe(GearsTaskConfig& config, Fields& root);

void describe(SplitConfig& config, Fields& fields);
void describe(GearsConfig& config, Fields& fields);
void describe(GearsLossConfig& config, bool uncertainty, Fields& fields);

}  // namespace oarlock::gears
