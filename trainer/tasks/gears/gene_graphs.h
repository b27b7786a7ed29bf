// The graphs between genes: co-expression and gene ontology. Files are CSV as in GEARS: a line
// "source,target,importance", followed by one line per edge.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/tasks/gears/cell_store.h"
#include "trainer/tasks/gears/config.h"
#include "trainer/tasks/gears/model.h"

namespace oarlock::gears {

struct NamedEdge {
  std::string source;
  std::string target;
  double importance = 0;

  bool operator==(const NamedEdge&) const = default;
};

// The columns may be in any order; other columns, such as pandas' index, are ignored. Fails with kNoInput, or with
// kDataErr naming file and line, or with kOsErr if it may not fit into memory.
Result<std::vector<NamedEdge>> read_edges(const std::filesystem::path& csv);
// Numbers round-trip bitwise.
Result<void> write_edges(const std::filesystem::path& csv, const std::vector<NamedEdge>& edges);

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

// The ontology terms of each gene.
using GeneTerms = std::map<std::string, std::set<std::string>>;

// Reads JSON {"GENE": ["GO:0005515", ...], ...}, which is gene2go_all.pkl of GEARS. Fails with kNoInput or kDataErr.
Result<GeneTerms> read_gene2go(const std::filesystem::path& json);

// Reads one gene per line. Fails with kNoInput, or with kOsErr if the file may not fit into memory.
Result<std::vector<std::string>> read_gene_list(const std::filesystem::path& path);

// get_GO_edge_list() of GEARS (gears/utils.py): edges between the genes that have terms, with the Jaccard index of
// their terms, if it is above 0.1. Returns the `similar` strongest edges of each target and its self-loop.
std::vector<NamedEdge> ontology_edges(const GeneTerms& terms, const std::vector<std::string>& genes, int64_t similar);

}  // namespace oarlock::gears
