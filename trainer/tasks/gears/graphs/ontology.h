// What genes have in common by the gene ontology: get_GO_edge_list() and set_pert_genes() of GEARS (gears/utils.py,
// gears/pertdata.py).
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/tasks/gears/graphs/edge_list.h"

namespace oarlock {

// The terms of each gene.
using GeneTerms = std::map<std::string, std::set<std::string>>;

// JSON {"GENE": ["GO:0005515", ...], ...}; GEARS has it as gene2go_all.pkl. kNoInput, kDataErr.
Result<GeneTerms> read_gene2go(const std::filesystem::path& json);

// One gene per line. kNoInput.
Result<std::vector<std::string>> read_gene_list(const std::filesystem::path& path);

// Between genes of `genes` that have terms: Jaccard's index of their terms where it is above 0.1; of each target the
// `similar` strongest and itself.
std::vector<NamedEdge> ontology_edges(const GeneTerms& terms, const std::vector<std::string>& genes, int64_t similar);

}  // namespace oarlock
