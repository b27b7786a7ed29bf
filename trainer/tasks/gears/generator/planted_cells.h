// Perturbed cells with effects that are known: a small AnnData file that GEARS can learn from, and the terms of its
// genes.
//
// A control cell is log(1 + Poisson) of each gene, with a rate of the gene's own. The genes that are perturbed come in
// clusters with common terms; a perturbation adds its cluster's vector and a smaller one of its own to the expression
// of a cell, two perturbations add both. The mean over perturbations therefore predicts little, while what was not seen
// follows from the cluster and from the other half of a pair.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace oarlock {

struct PlantedOptions {
  int64_t genes = 60;
  int64_t clusters = 5;
  int64_t perturbed_per_cluster = 4;
  int64_t pairs = 20;  // of perturbed genes
  int64_t cells = 30;  // of each condition
  int64_t control_cells = 200;
  double noise = 0.1;        // standard deviation that a perturbed cell has beside its control's
  double own_effect = 0.15;  // standard deviation of what a gene does beside its cluster
  uint64_t seed = 1;
};

struct Planted {
  std::vector<std::string> genes;
  std::vector<std::string> conditions;      // "ctrl" first
  std::vector<std::vector<double>> effect;  // [conditions][genes]
};

// FOLDER/cells.h5ad and FOLDER/gene2go.json; the folder exists. The same options give the same bytes of data.
Planted write_planted_cells(const std::filesystem::path& folder, const PlantedOptions& options);

}  // namespace oarlock
