#include "trainer/optim/moving_average.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>

#include <algorithm>

namespace oarlock {

MovingAverage::MovingAverage(const EmaConfig& config, const std::vector<NamedTensor>& parameters,
                             const std::vector<NamedTensor>& buffers)
    : config_(config) {
  const auto add = [this](const NamedTensor& item) {
    names_.push_back(item.name);
    live_.push_back(item.tensor);
    averages_.push_back(item.tensor.detach().clone());
  };
  for (const NamedTensor& parameter : parameters) add(parameter);
  if (!config_.buffers) return;
  for (const NamedTensor& buffer : buffers) {
    if (buffer.tensor.is_floating_point()) add(buffer);
  }
}

double MovingAverage::decay() const {
  if (!config_.warmup) return config_.decay;
  const auto n = static_cast<double>(updates_ + 1);
  return std::min(config_.decay, (1 + n) / (10 + n));
}

void MovingAverage::update() {
  const at::NoGradGuard no_grad;
  at::_foreach_lerp_(averages_, live_, 1 - decay());
  ++updates_;
}

void MovingAverage::exchange() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < live_.size(); ++i) {
    const at::Tensor own = live_[i].variable_data();  // shares the storage but not the identity
    live_[i].set_data(averages_[i]);
    averages_[i] = own;
  }
}

TensorMap MovingAverage::tensors() const {
  TensorMap out;
  for (size_t i = 0; i < names_.size(); ++i) out[names_[i]] = averages_[i];
  return out;
}

Result<void> MovingAverage::missing() {
  const at::NoGradGuard no_grad;
  at::_foreach_copy_(averages_, live_);
  updates_ = 0;
  return {};
}

Result<void> MovingAverage::restored(const nlohmann::json& values) {
  updates_ = values.value("updates", int64_t{0});
  return {};
}

}  // namespace oarlock
