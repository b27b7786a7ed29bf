// A multilayer perceptron with one hidden layer.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace oarlock {

// Linear, activation, Linear. The parameters have the names of torch.nn.Sequential(Linear, activation, Linear), so the
// linear layers are "0" and "2".
class Mlp final : public torch::nn::Module {
 public:
  using Activation = at::Tensor (*)(const at::Tensor&);

  Mlp(int64_t in_features, int64_t hidden_features, int64_t out_features, Activation activation)
      : first_(register_module("0", torch::nn::Linear(in_features, hidden_features))),
        second_(register_module("2", torch::nn::Linear(hidden_features, out_features))),
        activation_(activation) {}

  // Maps [..., in_features] to [..., out_features].
  at::Tensor forward(const at::Tensor& x) { return second_->forward(activation_(first_->forward(x))); }

 private:
  torch::nn::Linear first_;
  torch::nn::Linear second_;
  Activation activation_;
};

}  // namespace oarlock
