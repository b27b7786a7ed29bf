// Two linear layers with an activation between them, named 0 and 2 as in torch.nn.Sequential(Linear, activation,
// Linear).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace oarlock {

class TwoLayers final : public torch::nn::Module {
 public:
  using Activation = at::Tensor (*)(const at::Tensor&);
  TwoLayers(int64_t in, int64_t hidden, int64_t out, Activation activation);
  // [..., in] -> [..., out]
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Linear first_;
  torch::nn::Linear second_;
  Activation activation_;
};

}  // namespace oarlock
