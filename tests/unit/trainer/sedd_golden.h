// What the original SEDD computed (tests/data/sedd_*.safetensors), and how close we must be.
#pragma once

#include <ATen/ops/abs.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/checkpoint/safetensors.h"

namespace oarlock::test {

struct SeddGolden {
  TensorMap tensors;
  nlohmann::json config;  // of the original: tokens, graph, noise, model

  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }
};

inline SeddGolden sedd_golden(const std::string& name) {
  const auto file = read_safetensors(std::string(OARLOCK_TEST_DATA "/sedd_") + name + ".safetensors");
  EXPECT_TRUE(file) << file.error().message;
  return {file->tensors, nlohmann::json::parse(file->metadata.at("config"))};
}

// Relative to the largest element of what is expected.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what,
                         double tolerance = 1e-5) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double scale = expected.abs().max().item<double>();
  const double difference = (actual.detach().to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * scale) << what << ", of scale " << scale;
}

}  // namespace oarlock::test
