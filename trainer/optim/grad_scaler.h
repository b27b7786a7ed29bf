// Loss scaling for fp16: torch/amp/grad_scaler.py, all of it on the device.
#pragma once

#include "trainer/config/amp.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {

class GradScaler final : public Stateful {
 public:
  GradScaler(const AmpConfig& config, at::Device device);

  // Float32 scalar that the loss is multiplied by.
  const at::Tensor& scale() const { return scale_; }

  // Divides the gradients by the scale, and sets found_inf to 1 where one of them is not finite.
  void unscale(const GradientLists& gradients, at::Tensor& found_inf) const;

  // After the optimizer: backs off when found_inf is 1, grows after growth_interval steps without.
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

// Multiplies the gradients by `factor` and sets found_inf to 1 where one of them is not finite; both are float32
// scalars on the gradients' device.
void check_finite_and_scale(const GradientLists& gradients, at::Tensor& found_inf, const at::Tensor& factor);

}  // namespace oarlock
