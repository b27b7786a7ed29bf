// Loss scaling for float16, after torch.amp.GradScaler (torch/amp/grad_scaler.py). The scale, its growth and the search
// for infinite gradients stay on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

#include "ddp/clip_grad.h"
#include "ddp/tensor_map.h"

namespace torch::optim {
class Optimizer;
}

namespace oarlock {

// Names and defaults of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // steps without an infinite gradient until the scale grows
};

// A step with an optimizer of LibTorch, on gradients that DDP has averaged, so that all ranks decide alike:
//
//   scaler.scale(loss).backward();
//   scaler.unscale_(optimizer);                          // only if the gradients are clipped or read
//   oarlock::clip_grad_norm_(net->parameters(), 1.0);
//   scaler.step(optimizer);
//   scaler.update();
//
// Not thread-safe.
class GradScaler {
 public:
  // `device` is that of the loss and the gradients.
  explicit GradScaler(at::Device device, const GradScalerOptions& options = {});

  // Returns the loss multiplied by the scale.
  at::Tensor scale(const at::Tensor& loss) const { return loss.mul(scale_); }

  // Float32 scalar on the device.
  const at::Tensor& scale() const { return scale_; }

  // Divides the gradients of the optimizer's parameters, which may be sparse, by the scale, and records whether one of
  // them is not finite. At most once per step and optimizer; otherwise throws std::logic_error. In a RecoverableLoop,
  // it and clipping belong into the update, because the gradients may be computed again.
  void unscale_(torch::optim::Optimizer& optimizer);

  // Calls optimizer.step() unless a gradient is not finite, after unscale_() if the caller has not called it. Returns
  // whether the step was done. LibTorch's optimizers cannot skip a step on the device, so that this reads one number
  // from it, as PyTorch does for optimizers that are not fused. Throws std::logic_error if it is called again before
  // update().
  bool step(torch::optim::Optimizer& optimizer);

  // Reduces the scale if a gradient was not finite since the last call, and increases it after growth_interval steps
  // without one. Throws std::logic_error without a step() or unscale_() before it.
  void update();

  // The state, which shares its memory with this object: TrainingState::tensors (ddp/checkpoint.h).
  TensorMap tensors() const { return {{"scale", scale_}, {"growth_tracker", growth_tracker_}}; }

  // ---- for optimizers that skip a step on the device; `found_inf` is a float32 scalar there ----

  // Divides the gradients by the scale, and sets found_inf to 1 if one of them is not finite.
  void unscale(const GradientLists& gradients, at::Tensor& found_inf) const;

  // As update(), where found_inf is 1 if a gradient was not finite, and otherwise 0.
  void update(const at::Tensor& found_inf);

 private:
  struct OptimizerState {
    at::Tensor found_inf;  // whether a gradient was not finite
    bool has_stepped = false;
  };

  GradScalerOptions options_;
  at::Tensor scale_;           // float32 scalar
  at::Tensor growth_tracker_;  // int32 scalar: steps since the last overflow or growth
  std::map<const torch::optim::Optimizer*, OptimizerState> optimizers_;  // unscaled since the last update()
};

// Multiplies the gradients by `factor` and sets found_inf to 1 if one of them is not finite. Both are float32 scalars
// on the gradients' device.
void check_finite_and_scale(const GradientLists& gradients, at::Tensor& found_inf, const at::Tensor& factor);

}  // namespace oarlock
