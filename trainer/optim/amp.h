// Automatic mixed precision: autocast, and loss scaling for fp16.
#pragma once

#include <c10/core/Device.h>

#include "ddp/grad_scaler.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/optimization.h"

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

// The gradient scaler that amp.* configures, as a part of checkpoints.
class AmpGradScaler final : public GradScaler, public Stateful {
 public:
  AmpGradScaler(const AmpConfig& config, at::Device device);

  std::string_view section() const override { return "grad-scaler"; }
  TensorMap tensors() const override { return GradScaler::tensors(); }
  nlohmann::json values() const override { return nlohmann::json::object(); }
  Result<void> restored(const nlohmann::json&) override { return {}; }
  Result<void> missing() override { return {}; }
};

}  // namespace oarlock
