#include "trainer/tasks/gears/graphs/coexpression.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "trainer/tasks/gears/splits/condition.h"

namespace oarlock {
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

}  // namespace oarlock
