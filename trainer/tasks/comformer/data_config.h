// The section "data" of the task comformer. Where the Python original has a name for a key, it is its name.
#pragma once

#include <string>

#include "trainer/config/fields.h"
#include "trainer/tasks/comformer/graph/crystal_graph.h"
#include "trainer/tasks/comformer/split.h"

namespace oarlock {

struct CrystalDataConfig {
  std::string path;
  std::string target_property = "formation_energy_per_atom";
  std::string index = ":";    // structures of the file, as ase's index strings
  bool cache_graphs = true;   // false: each rank builds them anew
  std::string cache{};        // folder; empty: beside the file
  CrystalGraphOptions graph;  // cutoff, max_neighbors, use_lattice, exact_ties
  SplitConfig split;
};

void describe(CrystalDataConfig& config, Fields& fields);

}  // namespace oarlock
