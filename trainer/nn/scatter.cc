#include "trainer/nn/scatter.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/zeros.h>

#include <vector>

namespace oarlock {
namespace {

constexpr double kSoftmaxEpsilon = 1e-16;  // as in torch_geometric

at::Tensor accumulated(const at::Tensor& rows) {
  const bool reduced = rows.scalar_type() == at::kHalf || rows.scalar_type() == at::kBFloat16;
  return reduced ? rows.to(at::kFloat) : rows;
}

std::vector<int64_t> grouped_sizes(const at::Tensor& rows, int64_t groups) {
  std::vector<int64_t> sizes = rows.sizes().vec();
  sizes.front() = groups;
  return sizes;
}

// [n] -> [n, 1, ...], with as many dimensions as the rows have.
at::Tensor as_column(const at::Tensor& values, const at::Tensor& rows) {
  std::vector<int64_t> sizes(static_cast<size_t>(rows.dim()), 1);
  sizes.front() = values.size(0);
  return values.view(sizes);
}

at::Tensor segments(const at::Tensor& rows, const at::Tensor& begin, const char* reduction) {
  return at::segment_reduce(accumulated(rows).contiguous(), reduction, /*lengths=*/{}, /*indices=*/{}, begin,
                            /*axis=*/0, /*unsafe=*/true);
}

// Returns the group of each row.
at::Tensor groups_of(const at::Tensor& begin) { return at::repeat_interleave(begin.diff()); }

// Replaces the result of groups without rows (NaN for a mean, -inf for a maximum) by 0.
at::Tensor zero_where_empty(const at::Tensor& reduced, const at::Tensor& begin) {
  return reduced.masked_fill(as_column(begin.diff().eq(0), reduced), 0);
}

}  // namespace

at::Tensor scatter_sum(const at::Tensor& rows, const at::Tensor& group, int64_t groups) {
  const at::Tensor source = accumulated(rows);
  return at::zeros(grouped_sizes(source, groups), source.options()).index_add(0, group, source);
}

at::Tensor scatter_mean(const at::Tensor& rows, const at::Tensor& group, int64_t groups) {
  const at::Tensor count = at::bincount(group, {}, groups).clamp_min(1);
  return scatter_sum(rows, group, groups) / as_column(count, rows);
}

at::Tensor scatter_max(const at::Tensor& rows, const at::Tensor& group, int64_t groups) {
  const at::Tensor source = accumulated(rows);
  return at::zeros(grouped_sizes(source, groups), source.options())
      .scatter_reduce(0, as_column(group, source).expand_as(source), source, "amax", /*include_self=*/false);
}

// On the CPU, where index_add is deterministic too, segment_reduce of LibTorch is five times slower.
at::Tensor segment_sum(const at::Tensor& rows, const at::Tensor& begin) {
  if (rows.is_cpu()) return scatter_sum(rows, groups_of(begin), begin.size(0) - 1);
  return segments(rows, begin, "sum");
}

at::Tensor segment_mean(const at::Tensor& rows, const at::Tensor& begin) {
  if (rows.is_cpu()) return scatter_mean(rows, groups_of(begin), begin.size(0) - 1);
  return zero_where_empty(segments(rows, begin, "mean"), begin);
}

at::Tensor segment_max(const at::Tensor& rows, const at::Tensor& begin) {
  return zero_where_empty(segments(rows, begin, "max"), begin);
}

at::Tensor segment_softmax(const at::Tensor& rows, const at::Tensor& group, int64_t groups) {
  const at::Tensor source = accumulated(rows);
  const at::Tensor largest = scatter_max(source.detach(), group, groups).index_select(0, group);
  const at::Tensor exponential = (source - largest).exp();
  return exponential / (scatter_sum(exponential, group, groups).index_select(0, group) + kSoftmaxEpsilon);
}

}  // namespace oarlock
