#include "trainer/tasks/gears/graphs/ontology.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/files.h"

namespace oarlock {
namespace {

constexpr double kLeastSimilarity = 0.1;

double jaccard(const std::set<std::string>& a, const std::set<std::string>& b) {
  const auto common = std::count_if(a.begin(), a.end(), [&](const std::string& term) { return b.contains(term); });
  const auto all = static_cast<double>(a.size() + b.size()) - static_cast<double>(common);
  return all == 0 ? 0 : static_cast<double>(common) / all;
}

}  // namespace

Result<GeneTerms> read_gene2go(const std::filesystem::path& json) {
  const Result<std::string> text = read_file(json);
  if (!text) return tl::make_unexpected(text.error());
  const nlohmann::json read = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto is_list = [](const nlohmann::json& terms) {
    return terms.is_array() &&
           std::all_of(terms.begin(), terms.end(), [](const nlohmann::json& term) { return term.is_string(); });
  };
  if (!read.is_object() || !std::all_of(read.begin(), read.end(), is_list)) {
    return fail(ExitCode::kDataErr,
                fmt::format(R"({}: expected JSON {{"GENE": ["GO:0005515", ...], ...}})", json.string()));
  }
  return read.get<GeneTerms>();
}

Result<std::vector<std::string>> read_gene_list(const std::filesystem::path& path) {
  const Result<std::string> text = read_file(path);
  if (!text) return tl::make_unexpected(text.error());
  std::vector<std::string> genes;
  std::istringstream in(*text);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) genes.push_back(line);
  }
  return genes;
}

std::vector<NamedEdge> ontology_edges(const GeneTerms& terms, const std::vector<std::string>& genes, int64_t similar) {
  std::vector<NamedEdge> edges;
  for (const std::string& source : genes) {
    const auto own = terms.find(source);
    if (own == terms.end()) continue;
    for (const std::string& target : genes) {
      const auto other = terms.find(target);
      if (other == terms.end()) continue;
      const double score = jaccard(own->second, other->second);
      if (score > kLeastSimilarity) edges.push_back({source, target, score});
    }
  }
  return strongest_of_targets(std::move(edges), similar + 1);
}

}  // namespace oarlock
