// A file format of Oarlock for the graphs of a dataset: a directory with one file per tensor. The files are
// memory-mapped for reading, so that only recently used pages and 16 bytes per graph occupy memory. Writing takes
// constant memory.
//
//   edge_index               int64 [2, edges]: source and destination, numbered within the graph
//   edges.NAME ...           [edges, ...]
//   nodes.NAME, graphs.NAME  [nodes, ...], [graphs, ...]
//   node_offsets, edge_offsets  int64 [graphs + 1]
//   graphs.json              format version, counts and columns; written last
//
// All numbers are little-endian. The directory of a writer that did not finish cannot be opened.
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

// A tensor with a row per node, edge or graph.
struct GraphColumn {
  enum class Of { kNodes, kEdges, kGraphs };

  Of of = Of::kNodes;
  std::string name;
  at::ScalarType type = at::kFloat;  // kByte, kInt, kLong, kFloat or kDouble
  std::vector<int64_t> row{};        // its shape after dimension 0
};

// One graph. Its edges are sorted by destination.
struct GraphRecord {
  int64_t nodes = 0;
  std::span<const int64_t> sources;
  std::span<const int64_t> destinations;
  std::vector<std::span<const std::byte>> columns;  // in the order of the writer's columns; all rows of the graph
};

class GraphArchiveWriter {
 public:
  // Creates the files in an existing directory. Returns kCantCreate or a similar code if that fails.
  static Result<GraphArchiveWriter> create(const std::filesystem::path& directory, std::vector<GraphColumn> columns);

  // Appends a graph. Returns kIoErr if a write failed, for example because the disk is full; writes are buffered, so
  // that a later call may report it. Throws std::invalid_argument if the size of a column does not match its rows.
  Result<void> add(const GraphRecord& record);

  // Completes the files and syncs them to disk. Fails as add().
  Result<void> finish();

  int64_t graphs() const { return graphs_; }
  int64_t nodes() const { return nodes_; }
  int64_t edges() const { return edges_; }

 private:
  GraphArchiveWriter(std::filesystem::path directory, std::vector<GraphColumn> columns)
      : directory_(std::move(directory)), columns_(std::move(columns)) {}

  tl::unexpected<Error> write_error() const;
  bool append_destinations();

  std::filesystem::path directory_;
  std::vector<GraphColumn> columns_;
  std::vector<std::ofstream> files_;  // of the columns
  std::ofstream sources_;
  std::ofstream destinations_;  // appended to the sources by finish()
  std::ofstream node_offsets_;
  std::ofstream edge_offsets_;
  int64_t graphs_ = 0;
  int64_t nodes_ = 0;
  int64_t edges_ = 0;
};

// Opens a directory. The tensors, under the names of the columns, keep the files mapped. Returns kNoInput if the files
// do not exist, and kDataErr if they are damaged or have another format.
Result<GraphArrays> open_graph_archive(const std::filesystem::path& directory);

// Opens a directory, and checks that its graphs can be collated. Fails like open_graph_archive().
Result<GraphCollation> open_graphs(const std::filesystem::path& directory);

}  // namespace oarlock
