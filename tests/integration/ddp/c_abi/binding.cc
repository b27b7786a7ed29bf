#include "tests/integration/ddp/c_abi/binding.h"

#include <torch/types.h>

namespace {
at::Tensor& at_tensor(tensor of) { return *static_cast<at::Tensor*>(of); }
}  // namespace

tensor binding_zeros(int64_t rows, int64_t columns, int requires_grad) {
  return new at::Tensor(torch::zeros({rows, columns}, torch::dtype(torch::kDouble).requires_grad(requires_grad != 0)));
}

void binding_free(tensor of) { delete static_cast<at::Tensor*>(of); }

double* binding_data(tensor of) { return at_tensor(of).mutable_data_ptr<double>(); }

double* binding_gradient(tensor of) {
  const at::Tensor& gradient = at_tensor(of).grad();
  return gradient.defined() ? gradient.mutable_data_ptr<double>() : nullptr;
}

int64_t binding_size(tensor of) { return at_tensor(of).numel(); }

tensor binding_forward(tensor input, tensor first, tensor second) {
  return new at::Tensor(torch::tanh(at_tensor(input).mm(at_tensor(first))).mm(at_tensor(second)));
}

double binding_backward(tensor output) {
  const at::Tensor loss = (at_tensor(output) - 1).pow(2).mean();
  loss.backward();
  return loss.item<double>();
}

void binding_step(tensor parameter, double rate) {
  const at::NoGradGuard no_grad;
  at::Tensor& of = at_tensor(parameter);
  of -= rate * of.grad();
  of.mutable_grad().reset();
}
