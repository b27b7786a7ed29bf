// Reductions of graph networks: the rows (edges, nodes) that belong to a group (a node, a graph) become one row. As
// torch_geometric.utils.scatter, segment and softmax: a group without rows is 0. Differentiable. Half and bfloat16 rows
// are added up, and given back, in float.
//
// scatter_*: rows in any order; on a CUDA device a sum is the same bit for bit in every run only with
// `deterministic: true`. segment_*: rows lie group by group, as GraphCollation leaves the edges of a node and the nodes
// of a graph; always deterministic.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace oarlock {

// rows [n, ...], group int64 [n] in [0, groups) -> [groups, ...]
at::Tensor scatter_sum(const at::Tensor& rows, const at::Tensor& group, int64_t groups);
at::Tensor scatter_mean(const at::Tensor& rows, const at::Tensor& group, int64_t groups);
at::Tensor scatter_max(const at::Tensor& rows, const at::Tensor& group, int64_t groups);  // the gradient is shared by
                                                                                          // equal rows
// rows [n, ...], begin int64 [groups + 1]: group g has the rows from begin[g] to before begin[g + 1] -> [groups, ...]
at::Tensor segment_sum(const at::Tensor& rows, const at::Tensor& begin);
at::Tensor segment_mean(const at::Tensor& rows, const at::Tensor& begin);
at::Tensor segment_max(const at::Tensor& rows, const at::Tensor& begin);

// exp(row) / (the sum of exp over the row's group + 1e-16), computed from the distance to the group's largest: [n,
// ...].
at::Tensor segment_softmax(const at::Tensor& rows, const at::Tensor& group, int64_t groups);

}  // namespace oarlock
