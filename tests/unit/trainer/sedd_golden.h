// Results of the original SEDD (tests/data/sedd_*.safetensors).
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ddp/safetensors.h"
#include "tests/support/paths.h"
#include "tests/unit/trainer/expect_close.h"

namespace oarlock::test {

struct SeddGolden {
  TensorMap tensors;
  nlohmann::json config;  // of the original: tokens, graph, noise, model

  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }
};

inline SeddGolden sedd_golden(const std::string& name) {
  const auto file = read_safetensors(test::data_path("sedd_") + name + ".safetensors");
  EXPECT_TRUE(file) << file.error().message;
  return {file->tensors, nlohmann::json::parse(file->metadata.at("config"))};
}

}  // namespace oarlock::test
