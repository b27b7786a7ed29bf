// The split of conditions into training, validation and test set: PertData.prepare_split() and DataSplitter of GEARS
// (gears/pertdata.py, gears/data_utils.py of cell-gears 0.1.2). A seed gives the same sets as the original.
//
// A condition is "ctrl", one perturbed gene ("AHR+ctrl" or "ctrl+AHR"), or a combination ("AHR+FEV").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "common/error.h"
#include "workloads/gears/config.h"

namespace oarlock::gears {

inline constexpr char kControl[] = "ctrl";
// The names of the subgroups of the splits simulation and simulation_single.
inline constexpr std::array kSubgroups = {"combo_seen0", "combo_seen1", "combo_seen2", "unseen_single"};

using NameList = std::vector<std::string>;

// Returns the perturbed genes of a condition in its order.
NameList genes_of(const std::string& condition);

inline bool is_single(const std::string& condition) { return genes_of(condition).size() == 1; }
inline bool is_combination(const std::string& condition) { return genes_of(condition).size() > 1; }

// Returns the distinct genes of all conditions, sorted: get_genes_from_perts().
NameList genes_of_all(const NameList& conditions);

// Refers to the names of a list, which must outlive it.
using NameSet = std::unordered_set<std::string_view>;
inline NameSet set_of(const NameList& names) { return {names.begin(), names.end()}; }

// Returns the names that satisfy the predicate, in order.
template <typename Predicate>
NameList filter(const NameList& names, Predicate predicate) {
  NameList out;
  for (const std::string& name : names) {
    if (predicate(name)) out.push_back(name);
  }
  return out;
}

// numpy.unique and numpy.setdiff1d: the results are sorted and have no duplicates.
NameList sorted_unique(NameList names);
NameList without(const NameList& names, const NameList& others);

// The groups of held-out conditions of kSimulation and kSimulationSingle: "unseen_single", "combo_seen0" ...
using Subgroups = std::map<std::string, NameList>;

// Sets of conditions, each in the order of the data. Some conditions are in none of the sets, such as combinations with
// a held-out gene of the split "single".
struct Split {
  NameList train;
  NameList val;
  NameList test;
  Subgroups test_subgroups;
  Subgroups val_subgroups;
};

// Splits the conditions of the data, which include "ctrl" and are in the order of their first cells. Fails with
// kDataErr if the training set is empty, and with kNoInput or kDataErr if split_dict_path cannot be read. Pure except
// for reading that file.
Result<Split> make_split(const SplitConfig& config, const NameList& conditions);

// ---- DataSplitter ----------------------------------------------------------------------------------------------
// DataSplitter of GEARS (gears/data_utils.py), with the random numbers of numpy.

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

// get_simulation_split_single(). `singles` must be single perturbations. (The original always fails: for other
// conditions immediately, otherwise when it unpacks its result.)
SimulationSplit simulation_split_single(const NameList& singles, const SimulationOptions& options);

}  // namespace oarlock::gears
