#include "workloads/gears/gene_graphs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <unordered_map>

namespace oarlock::gears {

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

constexpr double kMinSimilarity = 0.1;

double jaccard(const std::set<std::string>& a, const std::set<std::string>& b) {
  const auto common = std::count_if(a.begin(), a.end(), [&](const std::string& term) { return b.contains(term); });
  const auto all = static_cast<double>(a.size() + b.size()) - static_cast<double>(common);
  return all == 0 ? 0 : static_cast<double>(common) / all;
}

}  // namespace

std::vector<NamedEdge> ontology_edges(const GeneTerms& terms, const std::vector<std::string>& genes, int64_t similar) {
  std::vector<NamedEdge> edges;
  for (const std::string& source : genes) {
    const auto own = terms.find(source);
    if (own == terms.end()) continue;
    for (const std::string& target : genes) {
      const auto other = terms.find(target);
      if (other == terms.end()) continue;
      const double score = jaccard(own->second, other->second);
      if (score > kMinSimilarity) edges.push_back({source, target, score});
    }
  }
  return strongest_of_targets(std::move(edges), similar + 1);
}

}  // namespace oarlock::gears
