// The edges of a graph between genes, by name, and the CSV that GEARS keeps them in: a line "source,target,importance",
// then one per edge.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/tasks/gears/model/layers.h"

namespace oarlock {

struct NamedEdge {
  std::string source;
  std::string target;
  double importance = 0;

  bool operator==(const NamedEdge&) const = default;
};

// Columns in any order; others are not read, as pandas' index. kNoInput; kDataErr with file and line.
Result<std::vector<NamedEdge>> read_edges(const std::filesystem::path& csv);
// Numbers are written so that they read back as the same bits.
Result<void> write_edges(const std::filesystem::path& csv, const std::vector<NamedEdge>& edges);

// Of each target the `count` edges of the largest importance, of equal ones the first; targets by name.
std::vector<NamedEdge> strongest_of_targets(std::vector<NamedEdge> edges, int64_t count);

// Nodes are numbered as in `names`, where each is once. Edges with other names are left out; of two edges between the
// same nodes the last counts, as in networkx.
GraphEdges numbered_edges(const std::vector<NamedEdge>& edges, const std::vector<std::string>& names);

}  // namespace oarlock
