// The split of conditions into training, validation and test set: PertData.prepare_split() and DataSplitter of GEARS
// (gears/pertdata.py, gears/data_utils.py of cell-gears 0.1.2). A seed gives the same sets as the original.
//
// A condition is "ctrl", one perturbed gene ("AHR+ctrl" or "ctrl+AHR"), or a combination ("AHR+FEV").
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/tasks/gears/config.h"

namespace oarlock::gears {

inline constexpr char kControl[] = "ctrl";

using NameList = std::vector<std::string>;

// Returns the perturbed genes of a condition in its order.
NameList genes_of(const std::string& condition);

inline bool is_single(const std::string& condition) { return genes_of(condition).size() == 1; }
inline bool is_combination(const std::string& condition) { return genes_of(condition).size() > 1; }

// Returns the distinct genes of all conditions, sorted: get_genes_from_perts().
NameList genes_of_all(const NameList& conditions);

bool contains(const NameList& names, const std::string& name);

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

}  // namespace oarlock::gears
