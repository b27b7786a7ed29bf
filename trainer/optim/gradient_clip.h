// Gradient clipping on the device: torch/nn/utils/clip_grad.py, without synchronizing with the host.
#pragma once

#include "trainer/config/optimization.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {

// Clips the gradients in place as the section "gradient" specifies. With clip_norm, returns the norm of all gradients
// together before clipping, as a scalar on their device (float32, or float64 with float64 gradients); otherwise, or
// without gradients, an undefined tensor. A norm that is not finite makes every gradient NaN or zero, as PyTorch does
// with error_if_nonfinite=False; the section "nonfinite" defines how such a step is handled.
at::Tensor clip_gradients(const GradientConfig& config, const GradientLists& gradients);

}  // namespace oarlock
