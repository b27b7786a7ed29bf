// Reductions of graph neural networks, as torch_geometric.utils.scatter, segment and softmax: the rows (edges or nodes)
// of each group (a node or a graph) are reduced to one row. The result of a group without rows is 0. All functions are
// differentiable. Rows of half and bfloat16 are accumulated and returned in float.
//
// scatter_*: the rows may have any order. On CUDA, sums are bitwise reproducible only with `deterministic: true`.
// segment_*: the rows of each group are contiguous, as GraphCollation provides the edges of a node and the nodes of a
// graph. Always deterministic.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace oarlock {

// rows [n, ...], group int64 [n] in [0, groups) -> [groups, ...]
at::Tensor scatter_sum(const at::Tensor& rows, const at::Tensor& group, int64_t groups);
at::Tensor scatter_mean(const at::Tensor& rows, const at::Tensor& group, int64_t groups);
// Equal rows share the gradient of a maximum.
at::Tensor scatter_max(const at::Tensor& rows, const at::Tensor& group, int64_t groups);
// rows [n, ...], begin int64 [groups + 1]: group g has the rows [begin[g], begin[g + 1]) -> [groups, ...]
at::Tensor segment_sum(const at::Tensor& rows, const at::Tensor& begin);
at::Tensor segment_mean(const at::Tensor& rows, const at::Tensor& begin);
at::Tensor segment_max(const at::Tensor& rows, const at::Tensor& begin);

// Returns exp(row) / (sum of exp over the group of the row + 1e-16) [n, ...], computed relative to the maximum of the
// group for numerical stability.
at::Tensor segment_softmax(const at::Tensor& rows, const at::Tensor& group, int64_t groups);

}  // namespace oarlock
