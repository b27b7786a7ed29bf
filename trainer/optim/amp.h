// Automatic mixed precision: autocast, and loss scaling for fp16.
#pragma once

#include <c10/core/Device.h>

#include "trainer/config/optimization.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {

// `with torch.autocast(...)`: while an instance exists, this thread's operations on the device run in amp.dtype if that
// is safe. The lower-precision copies of the weights are dropped at its end. Does nothing if amp is not enabled.
class Autocast {
 public:
  Autocast(const AmpConfig& config, c10::Device device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  c10::DeviceType device_;
  bool enabled_before_ = false;
  c10::ScalarType type_before_ = c10::ScalarType::Undefined;
};

// torch/amp/grad_scaler.py, entirely on the device.
class GradScaler final : public Stateful {
 public:
  GradScaler(const AmpConfig& config, at::Device device);

  // Float32 scalar that the loss is multiplied by.
  const at::Tensor& scale() const { return scale_; }

  // Divides the gradients by the scale, and sets found_inf to 1 if one of them is not finite.
  void unscale(const GradientLists& gradients, at::Tensor& found_inf) const;

  // Called after the optimizer: reduces the scale if found_inf is 1, increases it after growth_interval steps without.
  void update(const at::Tensor& found_inf);

  std::string_view section() const override { return "grad-scaler"; }
  TensorMap tensors() const override { return {{"scale", scale_}, {"growth_tracker", growth_tracker_}}; }
  nlohmann::json values() const override { return nlohmann::json::object(); }
  Result<void> restored(const nlohmann::json&) override { return {}; }
  Result<void> missing() override { return {}; }

 private:
  AmpConfig config_;
  at::Tensor scale_;           // float32 scalar
  at::Tensor growth_tracker_;  // int32 scalar: steps since the last overflow or growth
};

// Multiplies the gradients by `factor` and sets found_inf to 1 if one of them is not finite. Both are float32 scalars
// on the gradients' device.
void check_finite_and_scale(const GradientLists& gradients, at::Tensor& found_inf, const at::Tensor& factor);

}  // namespace oarlock
