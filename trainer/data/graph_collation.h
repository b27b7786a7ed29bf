// Collation by `graph`: the graphs of a batch become one graph of as many parts, as torch_geometric.data.Batch does.
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

// The graphs of a dataset, one after the other. Tensors are contiguous and on the CPU.
struct GraphArrays {
  std::vector<int64_t> node_offsets;  // graph i has the nodes from node_offsets[i] to before node_offsets[i + 1]
  std::vector<int64_t> edge_offsets;
  at::Tensor edge_index;                     // int64 [2, all edges]: source and destination, counted within the graph
  std::map<std::string, at::Tensor> nodes;   // by name, [all nodes, ...]
  std::map<std::string, at::Tensor> edges;   // [all edges, ...]
  std::map<std::string, at::Tensor> graphs;  // [graphs, ...]
  std::set<std::string> node_numbers;        // names among these whose int64 values number nodes within the graph
};

class GraphCollation {
 public:
  // Sorts each graph's edges by destination (then as they were), so that those of a whole batch are: segment reductions
  // need it. kDataErr: offsets and sizes that do not fit, a node number that its graph does not have.
  static Result<GraphCollation> create(GraphArrays arrays);

  int64_t size() const { return static_cast<int64_t>(arrays_.node_offsets.size()) - 1; }  // graphs
  const GraphArrays& arrays() const { return arrays_; }

  // batch["edge_index"] [2, edges] and all node numbers count within the batch: graph g's are moved by ptr[g]. Node,
  // edge and graph tensors are joined along dimension 0 under their names. Besides: "batch" int64 [nodes], the graph of
  // each node; "ptr" int64 [graphs + 1], where each graph's nodes begin; "edge_ptr" int64 [nodes + 1], where the edges
  // to each node begin.
  void collate(std::span<const int64_t> indices, Batch& batch) const;

 private:
  explicit GraphCollation(GraphArrays arrays) : arrays_(std::move(arrays)) {}
  GraphArrays arrays_;
};

}  // namespace oarlock
