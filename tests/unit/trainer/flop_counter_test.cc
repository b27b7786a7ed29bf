// Floating-point operations derived from the shapes, compared with closed forms.
#include "trainer/engine/profiler.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <functional>

namespace oarlock {
namespace {

int64_t flops_of(const std::function<void()>& compute) {
  const FlopCounter counter;
  compute();
  return counter.flops();
}

TEST(FlopCounter, MatrixProducts) {
  EXPECT_EQ(flops_of([] { at::matmul(at::randn({3, 5}), at::randn({5, 7})); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of([] { at::bmm(at::randn({4, 3, 5}), at::randn({4, 5, 7})); }), 2 * 4 * 3 * 5 * 7);
  torch::nn::Linear linear(5, 7);
  EXPECT_EQ(flops_of([&] { linear->forward(at::randn({3, 5})); }), 2 * 3 * 5 * 7);
  EXPECT_EQ(flops_of([&] { linear->forward(at::randn({2, 3, 5})); }), 2 * 2 * 3 * 5 * 7);
}

TEST(FlopCounter, Convolutions) {
  torch::nn::Conv2d strided(torch::nn::Conv2dOptions(4, 8, 3).stride(2).padding(1));
  EXPECT_EQ(flops_of([&] { strided->forward(at::randn({2, 4, 6, 6})); }), 2 * 2 * (8 * 3 * 3) * (4 * 3 * 3));
  torch::nn::Conv2d grouped(torch::nn::Conv2dOptions(4, 8, 1).groups(4));
  EXPECT_EQ(flops_of([&] { grouped->forward(at::randn({2, 4, 5, 5})); }), 2 * 2 * (8 * 5 * 5) * (4 / 4));
  torch::nn::Conv1d one(torch::nn::Conv1dOptions(4, 8, 3));
  EXPECT_EQ(flops_of([&] { one->forward(at::randn({2, 4, 6})); }), 2 * 2 * (8 * 4) * (4 * 3));
}

TEST(FlopCounter, Attention) {
  const at::Tensor query = at::randn({2, 3, 5, 8});
  const at::Tensor key = at::randn({2, 3, 7, 8});
  EXPECT_EQ(flops_of([&] { at::scaled_dot_product_attention(query, key, key); }), 2 * (2 * 3 * 5 * 7 * 8) * 2);
}

TEST(FlopCounter, IgnoresElementWiseOperations) {
  EXPECT_EQ(flops_of([] { at::randn({3, 5}).mul(2).add(1).sum(); }), 0);
}

TEST(FlopCounter, EachStartsAtZero) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(flops_of([] { at::matmul(at::randn({2, 2}), at::randn({2, 2})); }), 16);
}

}  // namespace
}  // namespace oarlock
