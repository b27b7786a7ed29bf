// Crystal graphs are built once and kept in an archive, an entry of FILE.oarlock (cache_directory.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/cache_directory.h"
#include "trainer/data/graph_collation.h"
#include "workloads/comformer/config.h"
#include "workloads/comformer/structures.h"

namespace oarlock::comformer {

// Builds the graphs unless the archive exists. For Task::prepare_data(). `targets` is the number of targets per label.
// Fails as open_cache_entry(), and with kDataErr naming the place.
Result<void> prepare_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log);

// The graphs of a file, and the entry of the cache that contains them, if any.
struct CrystalGraphs {
  std::shared_ptr<const CacheEntry> entry;
  GraphCollation graphs;
};

// Maps the archive into memory, or builds the graphs. For Task::prepare(). See convert_crystals() for the columns.
Result<CrystalGraphs> open_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log);

// Writes the graphs of `structures` (indices into `source`) in this order as a graph archive (graph_archive.h) to an
// existing directory, using `threads` threads. Columns: nodes "atomic_number" uint8; edges "vector" float32 [3]; graphs
// "lattice" float32 [3, 3], "label" float64 [targets], "content" uint8 [32], a fingerprint of the crystal, and
// "structure" int64, the index in the source. The files do not depend on the number of threads. A few hundred
// structures are in memory at a time. Fails with kDataErr, naming the place.
Result<void> convert_crystals(const CrystalSource& source, const std::vector<int64_t>& structures, int64_t targets,
                              const CrystalGraphOptions& options, int threads, const std::filesystem::path& directory,
                              const Logger& log);

}  // namespace oarlock::comformer
