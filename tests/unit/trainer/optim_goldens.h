// PyTorch's parameters, gradients and results (tests/data/make_optim_goldens.py).
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ddp/safetensors.h"
#include "tests/support/paths.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock::test {

inline const TensorMap& optim_goldens() {
  static const TensorMap kGoldens = read_safetensors(test::data_path("optim_goldens.safetensors")).value().tensors;
  return kGoldens;
}

inline constexpr int kGoldenSteps = 12;

inline std::vector<NamedTensor> golden_parameters() {
  std::vector<NamedTensor> out;
  for (const char* name : {"a.weight", "a.bias", "scale"}) {
    out.push_back({name, optim_goldens().at(std::string("initial/") + name).clone().requires_grad_()});
  }
  return out;
}

// The gradients of a step: "scale" has one at even steps only.
inline void set_gradients(const std::vector<NamedTensor>& parameters, int step) {
  for (const NamedTensor& parameter : parameters) {
    const bool used = parameter.name != "scale" || step % 2 == 0;
    const std::string key = "gradient/" + std::to_string(step) + "/" + parameter.name;
    parameter.tensor.mutable_grad() = used ? optim_goldens().at(key).clone() : at::Tensor();
  }
}

inline void expect_near(const at::Tensor& actual, const std::string& golden, double tolerance) {
  const double difference = (actual.detach() - optim_goldens().at(golden)).abs().max().item<double>();
  EXPECT_LE(difference, tolerance) << golden;
}

}  // namespace oarlock::test
