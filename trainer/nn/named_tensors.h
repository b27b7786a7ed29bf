// The tensors of a module by name.
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

// Parameters of a module in the order of registration; a tensor registered twice (tied weights) once, by its first
// name.
std::vector<NamedTensor> unique_parameters(const torch::nn::Module& module);
// The same of its buffers.
std::vector<NamedTensor> unique_buffers(const torch::nn::Module& module);

}  // namespace oarlock
