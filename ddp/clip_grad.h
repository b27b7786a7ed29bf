// Gradient clipping as in torch/nn/utils/clip_grad.py, on the device of the gradients and without synchronizing with
// the host: unlike torch::nn::utils::clip_grad_norm_() of LibTorch, which returns the norm as a number of the host. The
// gradients of DDP are equal on all ranks, and so is the result. Not thread-safe with respect to the gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace oarlock {

// Defined gradients, in lists of one dtype and device. A list may be empty.
using GradientLists = std::vector<std::vector<at::Tensor>>;

// Returns the defined gradients of the parameters.
GradientLists gradients_of(const std::vector<at::Tensor>& parameters);

// Scales the gradients in place so that their norm, taken over all of them together, is at most `max_norm`. Returns the
// norm before clipping as a scalar on their device (float32, or float64 with float64 gradients), or an undefined tensor
// without gradients. All gradients must be on one device. `norm_type` is the order of the norm; infinity is the largest
// absolute value. A norm that is not finite makes every gradient NaN or zero, as in PyTorch with
// error_if_nonfinite=False.
at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type = 2.0);
at::Tensor clip_grad_norm_(const GradientLists& gradients, double max_norm, double norm_type = 2.0);

// Clamps each element of the gradients to [-clip_value, clip_value], in place.
void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);
void clip_grad_value_(const GradientLists& gradients, double clip_value);

}  // namespace oarlock
