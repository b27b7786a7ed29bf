// The section "data" of the task gears: from the files that it names to cells, splits and graphs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/config/fields.h"
#include "trainer/tasks/gears/data/cell_store.h"
#include "trainer/tasks/gears/graphs/coexpression.h"
#include "trainer/tasks/gears/model/model.h"
#include "trainer/tasks/gears/splits/splits.h"

namespace oarlock {

struct GearsDataConfig {
  std::string path;   // h5ad
  std::string cache;  // "": beside it
  SplitConfig split;
  std::string gene2go;          // JSON: the terms of each gene
  std::string go_graph;         // CSV, instead of one made of gene2go
  std::string gene_set_path;    // genes that can be perturbed, one per line; "": those of the data
  std::string coexpress_graph;  // CSV, instead of one made of the training cells
  int64_t test_batch_size = 128;
};

void describe(GearsDataConfig& config, Fields& fields);

// How the graphs are made; keys of the section "model", as in GEARS.
struct GearsGraphConfig {
  int64_t num_similar_genes_go_graph = 20;
  CoexpressionOptions coexpression;
};

void describe(GearsGraphConfig& config, Fields& fields);

// Conditions by their numbers in the store.
struct GearsData {
  CellStore store;
  std::vector<std::string> perturbations;  // genes that can be perturbed, sorted: the rows of the model's pert_emb
  std::vector<std::string> left_out{};     // conditions with other genes
  Split split{};
  std::vector<int64_t> train{};
  std::vector<int64_t> val{};
  std::vector<int64_t> test{};
  GearsGraphs graphs{};
  at::Tensor perturbed{};  // int64 [conditions, 2]: numbers of perturbations; -1: none

  int64_t control() const { return store.number_of(kControl); }
  // The number of a gene that can be perturbed; -1: it cannot.
  int64_t perturbation(const std::string& gene) const;
};

// For Task::prepare_data(), on one rank of each node: converts the file and computes the co-expression, each once. What
// they are made of decides where they are kept, so that nothing stale is found. kNoInput, kDataErr, kCantCreate.
Result<void> prepare_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs, const Logger& log);

// What prepare_gears_data() made, and the rest; for Task::prepare(). kDataErr: nothing to train on or to evaluate with.
Result<GearsData> open_gears_data(const GearsDataConfig& config, const GearsGraphConfig& graphs);

}  // namespace oarlock
