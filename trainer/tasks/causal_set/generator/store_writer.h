// Generated causal sets as a zarr store of version 2 with the arrays of QuantumGrav's: adjacency_matrix, link_matrix
// [samples, elements, elements], in_degree, out_degree, max_pathlen_future, max_pathlen_past [samples, elements],
// cset_size, manifold_like [samples]. Blosc lz4, bit shuffle, one sample per chunk.
#pragma once

#include <cstdint>
#include <filesystem>

#include "common/error.h"

namespace oarlock {

struct GeneratedStore {
  int64_t samples = 1000;
  int64_t fewest_elements = 64;  // the sizes are uniform between these
  int64_t most_elements = 128;
  uint64_t seed = 0;
  bool reversed = false;  // the axes in the opposite order, as Julia writes them
};

// Samples of even number are sprinkled into a diamond (manifold_like 1), the others are Kleitman-Rothschild orders (0).
// Into a folder that is not there yet. kCantCreate, kIoErr.
Result<void> write_generated_store(const std::filesystem::path& folder, const GeneratedStore& store);

}  // namespace oarlock
