#include "trainer/nn/two_layers.h"

namespace oarlock {

TwoLayers::TwoLayers(int64_t in, int64_t hidden, int64_t out, Activation activation)
    : first_(register_module("0", torch::nn::Linear(in, hidden))),
      second_(register_module("2", torch::nn::Linear(hidden, out))),
      activation_(activation) {}

at::Tensor TwoLayers::forward(const at::Tensor& x) { return second_->forward(activation_(first_->forward(x))); }

}  // namespace oarlock
