// The parameters and buffers of a module under their names.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace oarlock {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Returns the parameters of a module and its submodules in the order of registration. A parameter that is registered
// more than once (tied weights) is returned once, under its first name.
std::vector<NamedTensor> unique_parameters(const torch::nn::Module& module);

// Returns the buffers of a module and its submodules in the same way.
std::vector<NamedTensor> unique_buffers(const torch::nn::Module& module);

}  // namespace oarlock
