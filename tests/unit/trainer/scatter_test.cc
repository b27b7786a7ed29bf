// Compares values and gradients of reductions over groups of rows with loops.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "trainer/nn/scatter.h"

namespace oarlock {
namespace {

constexpr int64_t kGroups = 6;

// Groups 0 and 4 have no rows, and group 2 has one.
const std::vector<int64_t> kSorted = {1, 1, 1, 2, 3, 3, 5, 5, 5, 5};
const std::vector<int64_t> kBegin = {0, 0, 3, 4, 6, 6, 10};
const std::vector<int64_t> kMixed = {5, 1, 3, 1, 5, 2, 5, 3, 1, 5};

at::Tensor int64_tensor(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

at::Tensor random_rows(at::IntArrayRef sizes) {
  return at::randn(sizes, at::detail::createCPUGenerator(3), at::kDouble);
}

std::vector<at::Tensor> rows_of(const at::Tensor& rows, const std::vector<int64_t>& group, int64_t of) {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < group.size(); ++i)
    if (group[i] == of) out.push_back(rows[static_cast<int64_t>(i)]);
  return out;
}

using Reduction = std::function<at::Tensor(const at::Tensor& rows)>;  // [of one group, ...] -> [...]

// The definition, computed group by group.
at::Tensor by_loop(const at::Tensor& rows, const std::vector<int64_t>& group, const Reduction& reduce) {
  std::vector<at::Tensor> out;
  for (int64_t g = 0; g < kGroups; ++g) {
    const std::vector<at::Tensor> own = rows_of(rows, group, g);
    out.push_back(own.empty() ? at::zeros_like(rows[0]) : reduce(at::stack(own)));
  }
  return at::stack(out);
}

at::Tensor gradient(const at::Tensor& output, const at::Tensor& rows) {
  const at::Tensor weight = at::arange(output.numel(), at::kDouble).view(output.sizes()).sin();
  return torch::autograd::grad({(output * weight).sum()}, {rows}).front();
}

const Reduction kSum = [](const at::Tensor& rows) { return rows.sum(0); };
const Reduction kMean = [](const at::Tensor& rows) { return rows.mean(0); };
const Reduction kMax = [](const at::Tensor& rows) { return rows.amax(0); };

void expect_same(const std::function<at::Tensor(const at::Tensor&)>& ours, const std::vector<int64_t>& group,
                 const Reduction& reduce) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{10}, {10, 3}, {10, 2, 3}}) {
    const at::Tensor rows = random_rows(sizes).requires_grad_();
    const at::Tensor expected = by_loop(rows, group, reduce);
    const at::Tensor got = ours(rows);
    ASSERT_EQ(got.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(got, expected, 1e-14, 1e-14)) << at::IntArrayRef(sizes);
    EXPECT_TRUE(at::allclose(gradient(got, rows), gradient(expected, rows), 1e-14, 1e-14)) << at::IntArrayRef(sizes);
  }
}

TEST(Scatter, MatchesLoop) {
  const at::Tensor group = int64_tensor(kMixed);
  expect_same([&](const at::Tensor& rows) { return scatter_sum(rows, group, kGroups); }, kMixed, kSum);
  expect_same([&](const at::Tensor& rows) { return scatter_mean(rows, group, kGroups); }, kMixed, kMean);
  expect_same([&](const at::Tensor& rows) { return scatter_max(rows, group, kGroups); }, kMixed, kMax);
}

TEST(Segments, MatchLoop) {
  const at::Tensor begin = int64_tensor(kBegin);
  expect_same([&](const at::Tensor& rows) { return segment_sum(rows, begin); }, kSorted, kSum);
  expect_same([&](const at::Tensor& rows) { return segment_mean(rows, begin); }, kSorted, kMean);
  expect_same([&](const at::Tensor& rows) { return segment_max(rows, begin); }, kSorted, kMax);
}

TEST(Segments, KeepsNegativeMaximum) {
  const at::Tensor rows = at::full({10, 2}, -3.0, at::kDouble);
  const at::Tensor largest = segment_max(rows, int64_tensor(kBegin));
  EXPECT_TRUE(at::equal(scatter_max(rows, int64_tensor(kSorted), kGroups), largest));
  EXPECT_EQ(largest[1][0].item<double>(), -3);
  EXPECT_EQ(largest[4][0].item<double>(), 0) << "a group without rows";
}

TEST(SegmentSoftmax, MatchesLoop) {
  const at::Tensor group = int64_tensor(kMixed);
  const at::Tensor rows = random_rows({10, 2}).requires_grad_();
  std::vector<at::Tensor> expected;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const at::Tensor own = at::stack(rows_of(rows, kMixed, kMixed[static_cast<size_t>(i)]));
    expected.push_back(rows[i].exp() / own.exp().sum(0));
  }
  const at::Tensor got = segment_softmax(rows, group, kGroups);
  EXPECT_TRUE(at::allclose(got, at::stack(expected), 1e-13, 1e-14));
  EXPECT_TRUE(at::allclose(gradient(got, rows), gradient(at::stack(expected), rows), 1e-12, 1e-14));
}

TEST(SegmentSoftmax, LargeScoresDoNotOverflow) {
  const at::Tensor got = segment_softmax(at::full({4}, 1e4, at::kFloat), int64_tensor({0, 0, 1, 1}), 2);
  EXPECT_TRUE(at::allclose(got, at::full({4}, 0.5, at::kFloat)));
}

// A sum of ones in bfloat16, which has 8 bits of precision, would stop at 256.
TEST(Scatter, AccumulatesReducedPrecisionInFloat) {
  const at::Tensor rows = at::full({4096, 1}, 1, at::kBFloat16);
  const at::Tensor group = at::zeros({4096}, at::kLong);
  for (const at::Tensor& sum : {scatter_sum(rows, group, 1), segment_sum(rows, int64_tensor({0, 4096}))}) {
    EXPECT_EQ(sum.scalar_type(), at::kFloat);
    EXPECT_EQ(sum.item<float>(), 4096);
  }
}

TEST(Scatter, ReturnsZeroWithoutRows) {
  const at::Tensor rows = at::empty({0, 3}, at::kDouble);
  const at::Tensor group = at::empty({0}, at::kLong);
  const at::Tensor begin = at::zeros({3}, at::kLong);
  const at::Tensor nothing = at::zeros({2, 3}, at::kDouble);
  for (const at::Tensor& got : {scatter_sum(rows, group, 2), scatter_mean(rows, group, 2), scatter_max(rows, group, 2),
                                segment_sum(rows, begin), segment_mean(rows, begin), segment_max(rows, begin)}) {
    EXPECT_TRUE(at::equal(got, nothing));
  }
}

}  // namespace
}  // namespace oarlock
