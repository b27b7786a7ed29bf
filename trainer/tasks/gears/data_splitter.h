// DataSplitter of GEARS (gears/data_utils.py), with the random numbers of numpy.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "trainer/tasks/gears/splits.h"

namespace oarlock::gears {

// numpy.random.RandomState (numpy/random/mtrand.pyx), so that a seed gives the splits of the Python original. MT19937
// itself is the standard library's.
class NumpyRandom {
 public:
  // numpy.random.seed(seed)
  explicit NumpyRandom(uint32_t seed) : generator_(seed) {}

  // choice(from, size, replace=False): the first elements of a permutation. `size` must not exceed from.size().
  std::vector<std::string> choice(const std::vector<std::string>& from, int64_t size);

  // choice(from, size), with replacement. `from` must not be empty if size > 0.
  std::vector<std::string> choice_with_replacement(const std::vector<std::string>& from, int64_t size);

 private:
  // Returns a number in [0, max]: the lowest bits of 32, redrawn while they are above max (random_interval).
  uint32_t interval(uint32_t max);

  std::mt19937 generator_;
};

struct ListSplit {
  NameList train;
  NameList test;
};

// get_split_list(), for kSingle, kComboSeen0 to 2 and kNoTest. Lists that are given are not drawn. As in the original,
// test_pert_genes are drawn for every kind, because each draw affects the next one.
ListSplit list_split(SplitKind kind, const NameList& conditions, double test_size, const NameList& test_pert_genes,
                     const NameList& test_perts, NumpyRandom& random);

struct SimulationOptions {
  double train_gene_set_size = 0.75;
  double combo_seen2_train_frac = 0.75;
  uint32_t seed = 1;
  NameList test_perts{};  // genes; empty: drawn
  bool only_test_set_perts = false;
};

struct SimulationSplit {
  NameList train;
  NameList test;
  Subgroups subgroups;  // of the test set
};

// get_simulation_split(), for single perturbations and combinations.
SimulationSplit simulation_split(const NameList& conditions, const SimulationOptions& options);

// get_simulation_split_single(). `singles` must be single perturbations. (The original fails for other conditions, and
// even then when it unpacks its result.)
SimulationSplit simulation_split_single(const NameList& singles, const SimulationOptions& options);

}  // namespace oarlock::gears
