#include "trainer/tasks/comformer/data_config.h"

#include <fmt/format.h>

#include "trainer/data/index_slice.h"

namespace oarlock {

void describe(CrystalDataConfig& config, Fields& fields) {
  constexpr int64_t kMostNeighbours = 1000;
  constexpr double kFarthest = 100;
  fields.field("path", config.path,
               "crystals with labels: extended XYZ, or a list of structures where it ends in .json");
  fields.field("target_property", config.target_property, "key of the label");
  fields.field("index", config.index, "which structures of the file: start:stop:step or one number, as Python and ase");
  fields.field("cutoff", config.graph.nearest.cutoff, from_to(0.1, kFarthest),
               "angstrom; where the search for neighbours begins: it goes on until each atom has max_neighbors");
  fields.field("max_neighbors", config.graph.nearest.count, from_to(1, kMostNeighbours),
               "nearest neighbours of an atom; all that are as far as the last come too");
  fields.field("use_lattice", config.graph.lattice_loops, "edges from each atom to its own images along the lattice");
  bool use_angle = false;
  fields.field("use_angle", use_angle, "must be false: neither network uses the angles between edges");
  if (use_angle) fields.problem("use_angle", "must be false: neither network uses the angles between edges");
  bool exact = config.graph.nearest.ties == Ties::kExact;
  fields.field(
      "exact_ties", exact,
      "equal distances are told apart by their last bits, as by the Python original: for weights that it trained");
  config.graph.nearest.ties = exact ? Ties::kExact : Ties::kTolerant;
  fields.field("cache_graphs", config.cache_graphs, "graphs are built once and kept on the disk; false: by every rank");
  fields.field("cache", config.cache, "folder of the graphs, 28 bytes per edge; empty: beside the file");
  fields.field("train_ratio", config.split.train_ratio, from_to(0, 1), "part of the structures to train on");
  fields.field("val_ratio", config.split.val_ratio, from_to(0, 1), "part that the best model is chosen by");
  fields.field("test_ratio", config.split.test_ratio, from_to(0, 1), "part that is predicted at the end");
  fields.field("split_seed", config.split.seed, at_least(0), "decides which are which, as Python's random.shuffle");
  fields.field("keep_data_order", config.split.keep_order, "the first train, the last are the test");
  fields.require("path");
  if (const Result<IndexSlice> index = IndexSlice::parse(config.index); !index)
    fields.problem("index", index.error().message);
  const double sum = config.split.train_ratio + config.split.val_ratio + config.split.test_ratio;
  constexpr double kRounding = 1e-9;
  if (sum > 1 + kRounding) fields.problem("train_ratio", fmt::format("the three ratios sum to {}, above 1", sum));
  fields.only_where("cache", config.cache_graphs, "cache_graphs is false");
}

}  // namespace oarlock
