// The section "amp": automatic mixed precision, with the names of torch.amp.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class AmpType { kBf16, kFp16 };

struct AmpConfig {
  bool enabled = false;
  AmpType dtype = AmpType::kBf16;
  // Of the gradient scaler, which fp16 needs and bf16 does not.
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;

  bool scales() const { return enabled && dtype == AmpType::kFp16; }
};

void describe(AmpConfig& config, Fields& fields);

}  // namespace oarlock
