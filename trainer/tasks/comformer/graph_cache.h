// Crystal graphs are built once and kept in an archive:
//
//   FILE.oarlock/graphs-HASH  the archive; HASH is of the file's content and of every option that affects the graphs
//   FILE.oarlock/file-HASH    a link to it; HASH is of the file's size and modification time instead, so that a rank
//                             finds the graphs without reading the file
//
// An archive appears atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/graph_collation.h"
#include "trainer/tasks/comformer/config.h"
#include "trainer/tasks/comformer/structures.h"

namespace oarlock::comformer {

// Builds the graphs unless the archive exists. For Task::prepare_data(). Waits while another process builds them.
// `targets` is the number of targets per label. Fails with kNoInput, kCantCreate, or kDataErr naming the place.
Result<void> prepare_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log);

// Maps the archive into memory, or builds the graphs if they are not cached. For Task::prepare(). See
// convert_crystals() for the columns.
Result<GraphCollation> open_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log);

// Writes the graphs of `structures` (indices into `source`) in this order as a graph archive (graph_archive.h) to an
// existing folder, using `threads` threads. Columns: nodes "atomic_number" uint8; edges "vector" float32 [3]; graphs
// "lattice" float32 [3, 3], "label" float64 [targets], and "structure" int64, the index in the source. The files do not
// depend on the number of threads. A few hundred structures are in memory at a time. Fails with kDataErr, naming the
// place.
Result<void> convert_crystals(const CrystalSource& source, const std::vector<int64_t>& structures, int64_t targets,
                              const CrystalGraphOptions& options, int threads, const std::filesystem::path& folder,
                              const Logger& log);

}  // namespace oarlock::comformer
