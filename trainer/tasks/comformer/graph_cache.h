// Where the graphs of a file of crystals are kept, so that they are built once:
//
//   FILE.oarlock/graphs-HASH  the archive; HASH is of the file's content and of what decides about the graphs
//   FILE.oarlock/file-HASH    a link to it; HASH is of the file's size and time of change instead, so that not every
//   rank
//                             reads the file to find its graphs
//
// An archive appears at once, or not at all.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/graph_collation.h"
#include "trainer/tasks/comformer/data_config.h"

namespace oarlock {

// For Task::prepare_data(): builds the graphs unless they are there. Waits while another process is at it. `targets`:
// numbers of a label. kNoInput, kDataErr naming the place, kCantCreate.
Result<void> prepare_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log);

// For Task::prepare(): those graphs, memory-mapped (columns: graph_conversion.h); where they are not to be kept, built
// now.
Result<GraphCollation> open_crystal_graphs(const CrystalDataConfig& config, int64_t targets, const Logger& log);

}  // namespace oarlock
