// The graphs between genes: co-expression and gene ontology.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/gears/cell_store.h"
#include "workloads/gears/config.h"
#include "workloads/gears/gene_tables.h"
#include "workloads/gears/model.h"

namespace oarlock::gears {

// Returns the `count` edges with the largest importance of each target, of equal ones the first; sorted by target.
std::vector<NamedEdge> strongest_of_targets(std::vector<NamedEdge> edges, int64_t count);

// Replaces names by their indices in `names`, which are distinct. Edges with other names are dropped; of two edges
// between the same nodes, the last one is used, as in networkx.
GraphEdges index_edges(const std::vector<NamedEdge>& edges, const std::vector<std::string>& names);

inline constexpr uint64_t kCoexpressionBytes = 24;  // a sum of products in float64, and its temporaries

// get_coexpression_network_from_train() of GEARS (gears/utils.py): edges whose importance, the absolute value of
// Pearson's correlation over the control cells and the cells of the single perturbations among `conditions` (indices in
// the store), is above the threshold. The correlation with a constant gene is 0. Ascending for each target, as in the
// original. REQUIRES: expect_memory() of kCoexpressionBytes for each pair of genes.
std::vector<NamedEdge> coexpression_edges(const CellStore& store, const std::vector<int64_t>& conditions,
                                          const CoexpressionOptions& options);

// get_GO_edge_list() of GEARS (gears/utils.py): edges between the genes that have terms, with the Jaccard index of
// their terms, if it is above 0.1. Returns the `similar` strongest edges of each target and its self-loop.
std::vector<NamedEdge> ontology_edges(const GeneTerms& terms, const std::vector<std::string>& genes, int64_t similar);

}  // namespace oarlock::gears
