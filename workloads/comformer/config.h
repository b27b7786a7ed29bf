// The configuration of the task comformer: its sections "data", "model" and "test". Keys that also exist in the Python
// original have the same names.
#pragma once

#include <cstdint>
#include <string>

#include "fields/fields.h"

namespace oarlock::comformer {

// Comparison of distances that may be equal.
enum class Ties {
  kTolerant,  // equal within kTieTolerance: by symmetry many distances are equal, except for rounding
  kExact,     // bitwise, as in the Python original: rounding decides which atoms of a shell are kept; and fractional
              // coordinates become Cartesian as with jarvis and numpy (original_cartesian())
};

constexpr double kTieTolerance = 1e-5;  // angstrom; positions are 1e-8 in files and 1e-6 in single precision

struct NearestOptions {
  int64_t count = 25;  // number of neighbors
  double cutoff = 4;   // angstrom; initial radius of the search, which grows until each atom has enough neighbors
  Ties ties = Ties::kTolerant;
};

struct CrystalGraphOptions {
  NearestOptions nearest;
  bool lattice_loops = true;  // edges from each atom to its own images along the three lattice vectors
};

struct SplitConfig {
  double train_ratio = 0.8;
  double val_ratio = 0.1;
  double test_ratio = 0.1;
  int64_t seed = 123;
  bool keep_order = false;  // no shuffling: the first structures are the training set, the last the test set
};

// The section "data".
struct CrystalDataConfig {
  std::string path;
  std::string target_property = "formation_energy_per_atom";
  std::string index = ":";    // structures of the file, as an index string of ase
  bool cache_graphs = true;   // false: each rank builds the graphs at every start
  std::string cache{};        // directory; empty: next to the file
  CrystalGraphOptions graph;  // cutoff, max_neighbors, use_lattice, exact_ties
  SplitConfig split;
};

enum class ComformerKind { kInvariant, kEquivariant };

// The section "model". With the defaults iComFormer has 4,966,497 parameters (4,111,201 with 3 convolutions), and
// eComFormer with its 3 convolutions 5,583,809.
struct ComformerConfig {
  ComformerKind kind = ComformerKind::kInvariant;
  int64_t conv_layers = 4;
  int64_t edge_features = 256;           // Gaussians for lengths
  int64_t triplet_input_features = 256;  // Gaussians for angles; iComFormer only
  int64_t node_features = 256;
  int64_t fc_features = 256;
  int64_t output_features = 1;
};

// The section "test".
struct TestConfig {
  std::string predictions;  // CSV file; empty: none
  int64_t batch_size = 64;
};

void describe(CrystalDataConfig& config, Fields& fields);
void describe(ComformerConfig& config, Fields& fields);
void describe(TestConfig& config, Fields& fields);

}  // namespace oarlock::comformer
