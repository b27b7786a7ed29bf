#include "trainer/optim/amp.h"

#include <ATen/autocast_mode.h>

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

AmpGradScaler::AmpGradScaler(const AmpConfig& config, at::Device device)
    : GradScaler(device, {.init_scale = config.init_scale,
                          .growth_factor = config.growth_factor,
                          .backoff_factor = config.backoff_factor,
                          .growth_interval = config.growth_interval}) {}

}  // namespace oarlock
