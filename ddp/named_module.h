// A module of tensors that belong to another owner: a TorchScript module, or a binding of LibTorch.
#pragma once

#include "ddp/named_tensors.h"

namespace oarlock {

// Registers a tensor under a name such as "features.0.weight", in submodules that are added as needed. A parameter
// keeps its requires_grad. Throws c10::Error if the name is taken or has an empty part.
void register_named_parameter(torch::nn::Module& root, const NamedTensor& parameter);
void register_named_buffer(torch::nn::Module& root, const NamedTensor& buffer);

}  // namespace oarlock
