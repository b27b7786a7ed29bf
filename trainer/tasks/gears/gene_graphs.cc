#include "trainer/tasks/gears/gene_graphs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "common/files.h"
#include "common/memory_limit.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/tasks/gears/splits.h"
#include "trainer/tasks/gears/string_lists.h"

namespace oarlock::gears {

namespace {

constexpr size_t kMaxTableBytes = size_t{1} << 30;  // the files are read as a whole

constexpr size_t kMaxColumns = 1000;

// Returns the first kMaxColumns cells, without the quotes that R's write.csv() writes around texts. A comma at the end
// of the line is not followed by an empty cell.
std::vector<std::string_view> cells_of(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  std::vector<std::string_view> cells;
  while (!line.empty() && cells.size() < kMaxColumns) {
    const size_t quote = line.starts_with('"') ? line.find('"', 1) : std::string_view::npos;
    const bool is_quoted = quote != std::string_view::npos;
    const size_t comma = line.find(',', is_quoted ? quote : 0);
    cells.push_back(is_quoted ? line.substr(1, quote - 1) : line.substr(0, comma));
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  return cells;
}

// Returns the file without a byte order mark, which Excel writes. Fails with kOsErr if its lines may not fit into memory.
Result<std::string> read_table(const std::filesystem::path& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  constexpr uint64_t kMostMemory = 32;  // bytes of memory for a byte of the file: of names with one letter
  ASSIGN_OR_RETURN(std::string text, read_regular_file(path, kMaxTableBytes));
  RETURN_IF_ERROR(expect_memory(text.size(), kMostMemory, path.string()));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

tl::unexpected<Error> bad_line(const std::filesystem::path& csv, int64_t line, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}:{}: {}", csv.string(), line, what));
}

// Indices of the three columns.
Result<std::array<size_t, 3>> columns_of(const std::filesystem::path& csv, const std::string& header) {
  const std::vector<std::string_view> names = cells_of(header);
  std::array<size_t, 3> at{};
  const std::array<const char*, 3> wanted{"source", "target", "importance"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    at[i] = static_cast<size_t>(std::find(names.begin(), names.end(), wanted[i]) - names.begin());
    if (at[i] == names.size()) {
      return bad_line(csv, 1, fmt::format("no column {}; expected source,target,importance", wanted[i]));
    }
  }
  return at;
}

}  // namespace

Result<std::vector<NamedEdge>> read_edges(const std::filesystem::path& csv) {
  ASSIGN_OR_RETURN(const std::string text, read_table(csv));
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  ASSIGN_OR_RETURN(const auto columns, columns_of(csv, line));
  const auto [source, target, importance] = columns;
  std::vector<NamedEdge> edges;
  for (int64_t number = 2; std::getline(in, line); ++number) {
    const std::vector<std::string_view> cells = cells_of(line);
    if (cells.empty()) continue;
    if (cells.size() <= std::max({source, target, importance})) return bad_line(csv, number, "has too few columns");
    NamedEdge edge{.source = std::string(cells[source]), .target = std::string(cells[target])};
    const std::string_view value = cells[importance];
    const std::optional<double> parsed = parse_double(value);
    if (!parsed || !(*parsed >= 0 && *parsed <= std::numeric_limits<float>::max())) {
      return bad_line(csv, number,
                      fmt::format("the importance \"{}\" is not a number of at least 0 that fits in float32",
                                  shortened(value)));
    }
    edge.importance = *parsed;
    edges.push_back(std::move(edge));
  }
  return edges;
}

Result<void> write_edges(const std::filesystem::path& csv, const std::vector<NamedEdge>& edges) {
  std::string text = "source,target,importance\n";
  for (const NamedEdge& edge : edges) text += fmt::format("{},{},{}\n", edge.source, edge.target, edge.importance);
  return write_file_atomically(csv, text);
}

std::vector<NamedEdge> strongest_of_targets(std::vector<NamedEdge> edges, int64_t count) {
  std::map<std::string, std::vector<NamedEdge>> by_target;
  for (NamedEdge& edge : edges) by_target[edge.target].push_back(std::move(edge));
  std::vector<NamedEdge> strongest;
  for (auto& [target, own] : by_target) {
    std::stable_sort(own.begin(), own.end(),
                     [](const NamedEdge& a, const NamedEdge& b) { return a.importance > b.importance; });
    own.resize(std::min(own.size(), static_cast<size_t>(count)));
    strongest.insert(strongest.end(), own.begin(), own.end());
  }
  return strongest;
}

GraphEdges index_edges(const std::vector<NamedEdge>& edges, const std::vector<std::string>& names) {
  std::unordered_map<std::string, int64_t> numbers;
  for (size_t i = 0; i < names.size(); ++i) numbers.emplace(names[i], static_cast<int64_t>(i));
  std::map<std::pair<int64_t, int64_t>, double> weights;  // by target, then source
  for (const NamedEdge& edge : edges) {
    const auto source = numbers.find(edge.source);
    const auto target = numbers.find(edge.target);
    if (source == numbers.end() || target == numbers.end()) continue;
    weights[{target->second, source->second}] = edge.importance;
  }
  const int64_t count = std::ssize(weights);
  GraphEdges graph{at::empty({count}, at::kLong), at::empty({count}, at::kLong), at::empty({count}, at::kFloat)};
  auto* source = graph.source.mutable_data_ptr<int64_t>();
  auto* target = graph.target.mutable_data_ptr<int64_t>();
  auto* weight = graph.weight.mutable_data_ptr<float>();
  for (const auto& [nodes, importance] : weights) {
    *target++ = nodes.first;
    *source++ = nodes.second;
    *weight++ = static_cast<float>(importance);
  }
  return graph;
}

namespace {

constexpr int64_t kBlockElements = int64_t{1} << 22;

std::vector<int64_t> cells_of(const CellStore& store, const std::vector<int64_t>& conditions) {
  std::vector<int64_t> cells;
  for (const int64_t condition : conditions) {
    if (is_combination(store.conditions()[static_cast<size_t>(condition)].name)) continue;
    const std::span<const int64_t> own = store.cells_of(condition);
    cells.insert(cells.end(), own.begin(), own.end());
  }
  std::sort(cells.begin(), cells.end());
  return cells;
}

// Calls `take` with [cells, genes] doubles, block by block.
template <typename Take>
void for_each_block(const CellStore& store, const std::vector<int64_t>& cells, Take take) {
  const int64_t genes = store.gene_count();
  const int64_t rows = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, genes));
  for (int64_t first = 0; first < std::ssize(cells); first += rows) {
    const int64_t count = std::min(rows, std::ssize(cells) - first);
    at::Tensor block = at::empty({count, genes}, at::kFloat);
    auto* data = block.mutable_data_ptr<float>();
    for (int64_t i = 0; i < count; ++i) {
      store.expression(cells[static_cast<size_t>(first + i)], {data + i * genes, static_cast<size_t>(genes)});
    }
    take(block.to(at::kDouble));
  }
}

at::Tensor absolute_correlation(const CellStore& store, const std::vector<int64_t>& cells) {
  const int64_t genes = store.gene_count();
  at::Tensor mean = at::zeros({genes}, at::kDouble);
  for_each_block(store, cells, [&](const at::Tensor& block) { mean.add_(block.sum(0)); });
  mean.div_(static_cast<double>(cells.size()));
  at::Tensor products = at::zeros({genes, genes}, at::kDouble);
  for_each_block(store, cells, [&](const at::Tensor& block) {
    const at::Tensor centered = block - mean;
    products.addmm_(centered.t(), centered);
  });
  const at::Tensor scale = products.diagonal().sqrt();
  products.div_(scale.unsqueeze(0)).div_(scale.unsqueeze(1));
  return products.nan_to_num_(0, 0, 0).clamp_(-1, 1).abs_();
}

}  // namespace

std::vector<NamedEdge> coexpression_edges(const CellStore& store, const std::vector<int64_t>& conditions,
                                          const CoexpressionOptions& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor correlation = absolute_correlation(store, cells_of(store, conditions));
  const int64_t genes = store.gene_count();
  const int64_t kept = std::min(options.similar + 1, genes);
  std::vector<int64_t> order(static_cast<size_t>(genes));
  std::vector<NamedEdge> edges;
  for (int64_t target = 0; target < genes; ++target) {
    const auto* row = correlation.const_data_ptr<double>() + target * genes;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                      [&](int64_t a, int64_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
    for (int64_t i = kept; i-- > 0;) {
      const int64_t source = order[static_cast<size_t>(i)];
      if (row[source] <= options.threshold) continue;
      edges.push_back(
          {store.genes()[static_cast<size_t>(source)], store.genes()[static_cast<size_t>(target)], row[source]});
    }
  }
  return edges;
}

namespace {

constexpr double kLeastSimilarity = 0.1;

double jaccard(const std::set<std::string>& a, const std::set<std::string>& b) {
  const auto common = std::count_if(a.begin(), a.end(), [&](const std::string& term) { return b.contains(term); });
  const auto all = static_cast<double>(a.size() + b.size()) - static_cast<double>(common);
  return all == 0 ? 0 : static_cast<double>(common) / all;
}

}  // namespace

Result<GeneTerms> read_gene2go(const std::filesystem::path& json) {
  constexpr char kExpected[] = R"(expected JSON {"GENE": ["GO:0005515", ...], ...})";
  const Result<nlohmann::json> read = read_string_lists(json, kMaxTableBytes);
  if (!read) return fail(read.error().code, fmt::format("{}; {}", read.error().message, kExpected));
  const auto is_list = [](const nlohmann::json& terms) {
    return terms.is_array() &&
           std::all_of(terms.begin(), terms.end(), [](const nlohmann::json& term) { return term.is_string(); });
  };
  if (!std::all_of(read->begin(), read->end(), is_list))
    return fail(ExitCode::kDataErr, fmt::format("{}: {}", json.string(), kExpected));
  return read->get<GeneTerms>();
}

Result<std::vector<std::string>> read_gene_list(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_table(path));
  std::vector<std::string> genes;
  std::istringstream in(text);
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

}  // namespace oarlock::gears
