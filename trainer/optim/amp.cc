#include "trainer/optim/amp.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>

namespace oarlock {

Autocast::Autocast(const AmpConfig& config, c10::Device device) : enabled_(config.enabled), device_(device.type()) {
  if (!enabled_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  type_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, config.dtype == AmpType::kFp16 ? at::kHalf : at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!enabled_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, type_before_);
}

GradScaler::GradScaler(const AmpConfig& config, at::Device device)
    : config_(config),
      scale_(at::full({}, config.init_scale, at::TensorOptions(device).dtype(at::kFloat))),
      growth_tracker_(at::full({}, 0, at::TensorOptions(device).dtype(at::kInt))) {}

void GradScaler::unscale(const GradientLists& gradients, at::Tensor& found_inf) const {
  // The reciprocal in double: that of a large float32 may be subnormal.
  check_finite_and_scale(gradients, found_inf, scale_.to(at::kDouble).reciprocal().to(at::kFloat));
}

void GradScaler::update(const at::Tensor& found_inf) {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, config_.growth_factor, config_.backoff_factor,
                         config_.growth_interval);
}

void check_finite_and_scale(const GradientLists& gradients, at::Tensor& found_inf, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  for (const std::vector<at::Tensor>& list : gradients) {
    if (!list.empty()) at::_amp_foreach_non_finite_check_and_unscale_(list, found_inf, factor);
  }
}

}  // namespace oarlock
