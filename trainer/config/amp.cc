#include "trainer/config/amp.h"

namespace oarlock {

void describe(AmpConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "matrix products and convolutions in the lower precision (autocast)");
  fields.choice<AmpType>("dtype", config.dtype, {{"bf16", AmpType::kBf16}, {"fp16", AmpType::kFp16}},
                         "the lower precision; fp16 scales the loss so that small gradients do not vanish");
  fields.field("init_scale", config.init_scale, above(0), "fp16: the first scale of the loss");
  fields.field("growth_factor", config.growth_factor, Range{.low = 1, .low_is_open = true},
               "fp16: times the scale after growth_interval steps without an overflow");
  fields.field("backoff_factor", config.backoff_factor,
               Range{.low = 0, .high = 1, .low_is_open = true, .high_is_open = true},
               "fp16: times the scale after an overflow, whose step is skipped");
  fields.field("growth_interval", config.growth_interval, from_to(1, 2147483647), "fp16: steps without an overflow");
  for (const char* key : {"init_scale", "growth_factor", "backoff_factor", "growth_interval"}) {
    fields.only_where(key, config.dtype == AmpType::kFp16, "belongs to amp.dtype: fp16; bf16 needs no scaling");
  }
}

}  // namespace oarlock
