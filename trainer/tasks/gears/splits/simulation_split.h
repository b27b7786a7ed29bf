// DataSplitter.get_simulation_split() and get_simulation_split_single() of GEARS.
#pragma once

#include <cstdint>

#include "trainer/tasks/gears/splits/splits.h"

namespace oarlock {

struct SimulationOptions {
  double train_gene_set_size = 0.75;
  double combo_seen2_train_frac = 0.75;
  uint32_t seed = 1;
  NameList test_perts{};  // genes; none: drawn
  bool only_test_set_perts = false;
};

struct SimulationSplit {
  NameList train;
  NameList test;
  Subgroups subgroups;  // of test
};

// Of singles and combinations.
SimulationSplit simulation_split(const NameList& conditions, const SimulationOptions& options);

// `singles`: single perturbations only. (The original fails where there are others, and then when it unpacks its
// result.)
SimulationSplit simulation_split_single(const NameList& singles, const SimulationOptions& options);

}  // namespace oarlock
