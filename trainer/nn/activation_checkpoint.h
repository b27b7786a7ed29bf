// Activation checkpointing: a part of the model stores only its inputs and is recomputed in backward, which trades a
// second forward pass for the memory of the intermediate activations.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace torch::nn {
class Module;
}

namespace oarlock {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// Returns function(inputs), with bitwise identical gradients: the recomputation uses the random state and the autocast
// state of forward. (Pass preserve_random_state = false if the function draws no random numbers.) `module` must own
// every parameter that the function uses. Backward throws if the function uses another tensor that requires gradients
// and is not an input.
//
// The autograd graph contains one node, whose inputs are `inputs` and the parameters of the module. So, as with
// torch.utils.checkpoint(use_reentrant=False), parameters receive their gradients in the outer backward, once per use.
// DDP works with every setting, and so do torch::autograd::grad, inputs without gradients, and nesting. With
// find_unused_parameters of DDP, a parameter of the module counts as used even if the function skips it; its gradient
// is then zero. Unlike torch.utils.checkpoint, the whole function is recomputed (no early stop), double backward is not
// supported, and buffers that the function updates (running statistics of BatchNorm) are updated twice: such modules
// should not track statistics, or be outside the function.
//
// If gradient mode is disabled, this is a plain call. The function must remain callable until backward has finished.
std::vector<at::Tensor> checkpoint_activations(const torch::nn::Module& module, TensorFunction function,
                                               const std::vector<at::Tensor>& inputs,
                                               bool preserve_random_state = true);

// The same for functions of one tensor.
at::Tensor checkpoint_activations(const torch::nn::Module& module,
                                  const std::function<at::Tensor(const at::Tensor&)>& function, const at::Tensor& input,
                                  bool preserve_random_state = true);

}  // namespace oarlock
