// The tables of a GEARS data set, without LibTorch: edges between genes as CSV, the ontology terms of genes as JSON,
// and lists of genes. A table of edges is as in GEARS: a line "source,target,importance", followed by one line per
// edge.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"

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

// The ontology terms of each gene.
using GeneTerms = std::map<std::string, std::set<std::string>>;

// Reads JSON {"GENE": ["GO:0005515", ...], ...}, which is gene2go_all.pkl of GEARS. Fails with kNoInput or kDataErr.
Result<GeneTerms> read_gene2go(const std::filesystem::path& json);

// Reads one gene per line. Fails with kNoInput, or with kOsErr if the file may not fit into memory.
Result<std::vector<std::string>> read_gene_list(const std::filesystem::path& path);

}  // namespace oarlock::gears
