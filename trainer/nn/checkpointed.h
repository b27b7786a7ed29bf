// Activation checkpointing: a part of the model keeps its inputs only and runs again in backward, which trades a second
// forward for the memory of everything in between.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace torch::nn {
class Module;
}

namespace oarlock {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// What function(inputs) gives, with the same gradients to the bit: random numbers and autocast are in backward as they
// were in forward (pass preserve_random_state = false where the function draws none). `module` owns every parameter
// that the function uses; tensors with gradients that are neither its parameters nor among the inputs make backward
// throw.
//
// The graph outside sees one node with the inputs and the module's parameters as its inputs. So, as with
// torch.utils.checkpoint(use_reentrant=False), gradients come to the parameters in the outer backward, once per use:
// DDP works with every setting, and so do torch::autograd::grad, inputs without gradients and nesting. With DDP's
// find_unused_parameters a parameter of the module counts as used even where the function skips it (its gradient is
// zero then). Unlike there, the function runs as a whole again (no early stop), backward of backward is not supported,
// and buffers that the function changes (BatchNorm's running statistics) are changed twice: give such modules no
// momentum of their own or keep them outside.
//
// Without gradient mode it is a plain call. The function must stay callable until backward is over.
std::vector<at::Tensor> checkpointed(const torch::nn::Module& module, TensorFunction function,
                                     const std::vector<at::Tensor>& inputs, bool preserve_random_state = true);

// The same of one tensor.
at::Tensor checkpointed(const torch::nn::Module& module, const std::function<at::Tensor(const at::Tensor&)>& function,
                        const at::Tensor& input, bool preserve_random_state = true);

}  // namespace oarlock
