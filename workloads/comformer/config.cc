#include "workloads/comformer/config.h"

#include <fmt/format.h>

#include "trainer/config/limits.h"
#include "trainer/data/index_slice.h"

namespace oarlock::comformer {

void describe(CrystalDataConfig& config, Fields& fields) {
  constexpr int64_t kMaxNeighbors = 1000;
  constexpr double kMaxCutoff = 100;
  fields.field("path", config.path, "labeled crystals: extended XYZ, or a JSON list of structures (.json)");
  fields.scope("path", Scope::kRank);
  fields.field("target_property", config.target_property, "key of the label");
  fields.field("index", config.index, "structures to read: a slice start:stop:step or one index, as in Python and ASE");
  fields.field("cutoff", config.graph.nearest.cutoff, from_to(0.1, kMaxCutoff),
               "initial radius of the neighbor search in angstrom; it grows until each atom has max_neighbors");
  fields.field("max_neighbors", config.graph.nearest.count, from_to(1, kMaxNeighbors),
               "nearest neighbors of an atom, plus all atoms at the distance of the last one");
  fields.field("use_lattice", config.graph.lattice_loops,
               "add edges from each atom to its own images along the lattice");
  bool use_angle = false;
  fields.field("use_angle", use_angle, "must be false: neither network uses the angles between edges");
  if (use_angle) fields.problem("use_angle", "must be false: neither network uses the angles between edges");
  bool exact = config.graph.nearest.ties == Ties::kExact;
  fields.field("exact_ties", exact,
               "compute coordinates and compare distances bitwise as the Python original does; for weights trained by "
               "the original");
  config.graph.nearest.ties = exact ? Ties::kExact : Ties::kTolerant;
  fields.field("cache_graphs", config.cache_graphs,
               "build graphs once and keep them on disk; false: build on every rank");
  fields.field("cache", config.cache, "directory of the graphs, 28 bytes per edge; empty: next to the file");
  fields.field("train_ratio", config.split.train_ratio, from_to(0, 1), "share of the structures for training");
  fields.field("val_ratio", config.split.val_ratio, from_to(0, 1),
               "share of the structures for validation, which selects the best model");
  fields.field("test_ratio", config.split.test_ratio, from_to(0, 1), "share of the structures for the test at the end");
  fields.field("split_seed", config.split.seed, at_least(0),
               "seed of the split, which is that of Python's random.shuffle with the same seed");
  fields.field("keep_data_order", config.split.keep_order,
               "do not shuffle: the first structures are for training, the last for the test");
  fields.require("path");
  if (const Result<IndexSlice> index = IndexSlice::parse(config.index); !index)
    fields.problem("index", index.error().message);
  const double sum = config.split.train_ratio + config.split.val_ratio + config.split.test_ratio;
  constexpr double kRounding = 1e-9;
  if (sum > 1 + kRounding) fields.problem("train_ratio", fmt::format("the three ratios sum to {}, above 1", sum));
  for (const char* key : {"cache_graphs", "cache"}) fields.scope(key, Scope::kRank);
  fields.only_if("cache", config.cache_graphs, "cache_graphs is false");
}

void describe(ComformerConfig& config, Fields& fields) {
  constexpr int64_t kMaxWidth = 65536;
  fields.choice<ComformerKind>(
      "name", config.kind, {{"iComformer", ComformerKind::kInvariant}, {"eComformer", ComformerKind::kEquivariant}},
      "iComformer: uses lengths of edges and their angles with the lattice; eComformer: uses equivariant tensors");
  const bool invariant = config.kind == ComformerKind::kInvariant;
  if (!invariant && !fields.has("conv_layers")) config.conv_layers = 3;
  fields.field("conv_layers", config.conv_layers, from_to(1, 100),
               "number of node-wise layers; default, as in the original: 4 for iComformer (3 in the paper's small "
               "variant), 3 for eComformer");
  fields.field("edge_features", config.edge_features, from_to(2, kMaxWidth),
               "number of Gaussian basis functions that encode a length");
  fields.field("triplet_input_features", config.triplet_input_features, from_to(2, kMaxWidth),
               "iComformer: number of Gaussian basis functions that encode an angle");
  fields.field("node_features", config.node_features, from_to(1, kMaxWidth), "width of the layers");
  fields.field("fc_features", config.fc_features, from_to(1, kMaxWidth), "width of the layer before the output");
  fields.field("output_features", config.output_features, from_to(1, kMaxWidth),
               "number of outputs per crystal, as in its target_property");
  fields.only_if("triplet_input_features", invariant, "belongs to name: iComformer");
}

void describe(TestConfig& config, Fields& fields) {
  fields.field("predictions", config.predictions,
               "CSV of id, target and prediction, e.g. test_predictions.csv; empty: none");
  fields.scope("predictions", Scope::kRank);
  fields.field("batch_size", config.batch_size, from_to(1, kMaxBatchSize), "structures per batch and rank");
}

}  // namespace oarlock::comformer
