// Comparison of tensors with the results of an original program.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace oarlock::test {

// The tolerance is relative to the largest absolute value of `expected`, or to `least` if that is larger.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what,
                         double tolerance = 1e-5, double least = 0) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double scale = std::max(expected.abs().max().item<double>(), least);
  const double difference = (actual.detach().to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * scale) << what << ", of scale " << scale;
}

}  // namespace oarlock::test
