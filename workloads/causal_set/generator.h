// Synthetic causal sets of two classes with known statistics, and the zarr store that they are written to. A seed gives
// the same sets on every machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "workloads/causal_set/causal_relations.h"

namespace oarlock::causal_set {

// Sprinkles points uniformly into a causal diamond of two-dimensional Minkowski space, numbered by time. One point
// precedes another if both its light-cone coordinates are smaller, so half of all pairs are related on average. Returns
// all relations.
std::vector<Relation> sprinkle_diamond(int64_t size, uint64_t seed);

// Draws a Kleitman-Rothschild order: layers of a quarter, a half and a quarter of the elements, with elements of
// adjacent layers related with probability 1/2. Almost all large partial orders have this form (Kleitman and
// Rothschild, Asymptotic enumeration of partial orders on a finite set, 1975), and none of them resembles a manifold.
// Returns all relations.
std::vector<Relation> kleitman_rothschild(int64_t size, uint64_t seed);

struct GeneratedStore {
  int64_t samples = 1000;
  int64_t min_elements = 64;  // sizes are uniform in [min_elements, max_elements]
  int64_t max_elements = 128;
  uint64_t seed = 0;
  bool reversed = false;  // writes the axes in reverse order, as Julia does
};

// Writes a zarr store of version 2 with the arrays of QuantumGrav's stores: adjacency_matrix, link_matrix [samples,
// elements, elements], in_degree, out_degree, max_pathlen_future, max_pathlen_past [samples, elements], cset_size,
// manifold_like [samples]; Blosc lz4 with bit shuffle, one sample per chunk. Even samples are sprinkled into a diamond
// (manifold_like 1), odd ones are Kleitman-Rothschild orders (0). The directory must not exist. Fails with kCantCreate
// or kIoErr.
Result<void> write_generated_store(const std::filesystem::path& directory, const GeneratedStore& store);

}  // namespace oarlock::causal_set
