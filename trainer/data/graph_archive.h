// The graphs of a dataset as files of one folder, memory-mapped when they are read: in memory is only what was touched
// of late, and 16 bytes per graph. Written graph by graph, in memory of a constant size. One file per tensor:
//
//   edge_index               int64 [2, edges]: source and destination, counted within the graph
//   edges.NAME ...           [edges, ...]
//   nodes.NAME, graphs.NAME  [nodes, ...], [graphs, ...]
//   node_offsets, edge_offsets  int64 [graphs + 1]
//   graphs.json              format, numbers and columns; comes last
//
// Little-endian. A writer that was killed leaves a folder that does not open.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/graph_collation.h"

namespace oarlock {

// A tensor besides the edges' ends.
struct GraphColumn {
  enum class Of { kNodes, kEdges, kGraphs };

  Of of = Of::kNodes;
  std::string name;
  at::ScalarType type = at::kFloat;  // kByte, kInt, kLong, kFloat or kDouble
  std::vector<int64_t> row{};        // its shape behind dimension 0
};

// One graph: its edges come by destination.
struct GraphRecord {
  int64_t nodes = 0;
  std::span<const int64_t> sources;
  std::span<const int64_t> destinations;
  std::vector<std::span<const std::byte>> columns;  // in the order of the writer's; all rows of the graph
};

class GraphArchiveWriter {
 public:
  // Into a folder that is there. kCantCreate and kin.
  static Result<GraphArchiveWriter> create(const std::filesystem::path& folder, std::vector<GraphColumn> columns);

  // A failed write is reported by finish(). Throws std::invalid_argument where a column's bytes do not fit its rows.
  void add(const GraphRecord& record);
  // Everything is on the disk then. kIoErr: the disk is full.
  Result<void> finish();

  int64_t graphs() const { return graphs_; }
  int64_t nodes() const { return nodes_; }
  int64_t edges() const { return edges_; }

 private:
  GraphArchiveWriter(std::filesystem::path folder, std::vector<GraphColumn> columns)
      : folder_(std::move(folder)), columns_(std::move(columns)) {}

  std::filesystem::path folder_;
  std::vector<GraphColumn> columns_;
  std::vector<std::ofstream> files_;  // those of the columns
  std::ofstream sources_;
  std::ofstream destinations_;  // joined to the sources at the end
  std::ofstream node_offsets_;
  std::ofstream edge_offsets_;
  int64_t graphs_ = 0;
  int64_t nodes_ = 0;
  int64_t edges_ = 0;
};

// The tensors keep the files mapped, under the columns' names. kNoInput: no such files. kDataErr: damaged, or of
// another format.
Result<GraphArrays> open_graph_archive(const std::filesystem::path& folder);

}  // namespace oarlock
