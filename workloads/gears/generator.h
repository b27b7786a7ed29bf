// Synthetic perturbed cells with known effects: a small AnnData file from which GEARS can learn, and the ontology terms
// of its genes.
//
// The expression of a control cell is log(1 + Poisson), with a rate per gene. The perturbed genes are in clusters with
// common terms. A perturbation adds the vector of its cluster and a smaller, individual vector to the expression of
// a cell; two perturbations add both. The mean over perturbations therefore predicts little, while the effect of an
// unseen perturbation follows from its cluster and from the other half of a pair.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace oarlock::gears {

struct PlantedOptions {
  int64_t genes = 60;
  int64_t clusters = 5;
  int64_t perturbed_per_cluster = 4;
  int64_t pairs = 20;  // of perturbed genes
  int64_t cells = 30;  // per condition
  int64_t control_cells = 200;
  double noise = 0.1;        // standard deviation of a perturbed cell's noise
  double own_effect = 0.15;  // standard deviation of a gene's effect in addition to its cluster's
  uint64_t seed = 1;
};

struct Planted {
  std::vector<std::string> genes;
  std::vector<std::string> conditions;      // "ctrl" is the first one
  std::vector<std::vector<double>> effect;  // [conditions][genes]
};

// Writes DIRECTORY/cells.h5ad and DIRECTORY/gene2go.json; the directory must exist. The same options give the same data
// bitwise.
Planted write_planted_cells(const std::filesystem::path& directory, const PlantedOptions& options);

}  // namespace oarlock::gears
