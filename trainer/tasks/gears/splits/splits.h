// Which conditions are trained on, validated with and tested with: PertData.prepare_split() and DataSplitter of GEARS
// (gears/pertdata.py, gears/data_utils.py of cell-gears 0.1.2). A seed gives the sets that the original gives.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/fields.h"
#include "trainer/tasks/gears/splits/condition.h"

namespace oarlock {

enum class SplitKind {
  kSimulation,        // genes are held out, and with them what contains them
  kSimulationSingle,  // the same, of single perturbations only; combinations are left out
  kComboSeen0,        // combinations none of whose genes was seen
  kComboSeen1,        // one of them was
  kComboSeen2,        // both were
  kSingle,
  kNoTest,   // train and val only
  kNoSplit,  // everything is test
  kCustom,   // from a JSON file
};

struct SplitConfig {
  SplitKind kind = SplitKind::kSimulation;
  int64_t seed = 1;
  double train_gene_set_size = 0.75;
  double combo_seen2_train_frac = 0.75;
  double combo_single_split_test_set_fraction = 0.1;
  std::vector<std::string> test_perts{};       // simulation: genes to be tested; combo_seen2: conditions
  bool only_test_set_perts = false;            // simulation: no gene but these is tested
  std::vector<std::string> test_pert_genes{};  // combo_seen0 and 1: instead of drawn ones
  std::string split_dict_path{};               // custom: {"train": [...], "val": [...], "test": [...]}
};

// The keys split, seed, train_gene_set_size ... of a section.
void describe(SplitConfig& config, Fields& fields);
std::string_view name_of(SplitKind kind);

// Of the held-out conditions of kSimulation and kSimulationSingle: "unseen_single", "combo_seen0" ...
using Subgroups = std::map<std::string, NameList>;

// Sets of conditions, each in the order of the data. What is in no set is left out, as combinations with a held-out
// gene are by `single`.
struct Split {
  NameList train;
  NameList val;
  NameList test;
  Subgroups test_subgroups;
  Subgroups val_subgroups;
};

// `conditions`: those of the data in the order of their first cells, with "ctrl" among them. kDataErr: nothing is left
// to train on; kNoInput and kDataErr of split_dict_path. Pure but for that file.
Result<Split> make_split(const SplitConfig& config, const NameList& conditions);

}  // namespace oarlock
