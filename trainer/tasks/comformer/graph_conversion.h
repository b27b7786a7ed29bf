// Crystals to graphs in an archive, on all cores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/tasks/comformer/crystal_source.h"
#include "trainer/tasks/comformer/graph/crystal_graph.h"

namespace oarlock {

// Writes the graphs of `structures` of the source, in this order, into a folder that is there (graph_archive.h).
// Columns: nodes "atomic_number" uint8; edges "vector" float32 [3]; graphs "lattice" float32 [3, 3], "label" float64
// [targets], "structure" int64, its number in the source. What is written does not depend on the number of threads. In
// memory are some hundred structures at a time. kDataErr, naming the place.
Result<void> convert_crystals(const CrystalSource& source, const std::vector<int64_t>& structures, int64_t targets,
                              const CrystalGraphOptions& options, int threads, const std::filesystem::path& folder,
                              const Logger& log);

}  // namespace oarlock
