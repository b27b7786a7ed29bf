// Gradient clipping on the device: torch/nn/utils/clip_grad.py, without waiting for the host.
#pragma once

#include "trainer/config/gradient.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {

// Clips in place as the section "gradient" says. With clip_norm gives the norm of all gradients together before the
// clipping, as a float32 or wider scalar on their device; else, or without a gradient, an undefined tensor. A norm that
// is not finite makes every gradient NaN or zero, as in PyTorch with error_if_nonfinite=False; the section "nonfinite"
// says what is done about it.
at::Tensor clip_gradients(const GradientConfig& config, const GradientLists& gradients);

}  // namespace oarlock
