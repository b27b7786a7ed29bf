// Collation of graphs: the graphs of a batch become one disconnected graph, as in torch_geometric.data.Batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/data/batch.h"

namespace oarlock {

// The concatenated graphs of a dataset. Tensors are contiguous and on the CPU.
struct GraphArrays {
  std::vector<int64_t> node_offsets;  // graph i has the nodes [node_offsets[i], node_offsets[i + 1])
  std::vector<int64_t> edge_offsets;
  at::Tensor edge_index;                     // int64 [2, all edges]: source and destination, numbered within the graph
  std::map<std::string, at::Tensor> nodes;   // by name, [all nodes, ...]
  std::map<std::string, at::Tensor> edges;   // [all edges, ...]
  std::map<std::string, at::Tensor> graphs;  // [graphs, ...]
  std::set<std::string> node_numbers;        // names of tensors whose int64 values are node numbers within the graph
};

class GraphCollation {
 public:
  // Sorts the edges of each graph by destination (stably), as segment reductions require; a batch is then sorted, too.
  // Returns kDataErr if offsets and sizes do not match, or a node number is out of range.
  static Result<GraphCollation> create(GraphArrays arrays);

  int64_t size() const { return static_cast<int64_t>(arrays_.node_offsets.size()) - 1; }  // graphs
  const GraphArrays& arrays() const { return arrays_; }

  // Joins the graphs of these indices. Node, edge and graph tensors are concatenated along dimension 0 under their
  // names. batch["edge_index"] [2, edges] and all node numbers are numbered within the batch: those of graph g are
  // shifted by ptr[g]. Adds "batch" int64 [nodes], the graph of each node; "ptr" int64 [graphs + 1], the first node of
  // each graph; and "edge_ptr" int64 [nodes + 1], the first edge to each node. Throws std::out_of_range if an index is
  // out of range.
  void collate(std::span<const int64_t> indices, Batch& batch) const;

 private:
  explicit GraphCollation(GraphArrays arrays) : arrays_(std::move(arrays)) {}
  GraphArrays arrays_;
};

}  // namespace oarlock
