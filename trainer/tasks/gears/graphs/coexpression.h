// Which genes are expressed together in the training data: get_coexpression_network_from_train() of GEARS
// (gears/utils.py).
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/tasks/gears/data/cell_store.h"
#include "trainer/tasks/gears/graphs/edge_list.h"

namespace oarlock {

struct CoexpressionOptions {
  double threshold = 0.4;  // edges are above it
  int64_t similar = 20;    // at most so many sources of a target, besides itself
};

// The absolute value of Pearson's correlation over the control cells and those of the single perturbations among
// `conditions` (numbers of the store); 0 for a gene that does not vary. Ascending for each target, as the original
// writes it. Memory: genes x genes doubles, and a block of cells.
std::vector<NamedEdge> coexpression_edges(const CellStore& store, const std::vector<int64_t>& conditions,
                                          const CoexpressionOptions& options);

}  // namespace oarlock
