#include "trainer/config/ema.h"

namespace oarlock {

void describe(EmaConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "keep an exponential moving average of the weights");
  fields.field("decay", config.decay, Range{.low = 0, .high = 1, .high_is_open = true},
               "how much of the average stays per step");
  fields.field("warmup", config.warmup, "a smaller decay in the beginning: min(decay, (1 + n) / (10 + n)) at update n");
  fields.field("buffers", config.buffers, "average buffers too (running statistics); else the model's are used");
  fields.field("evaluate", config.evaluate, "evaluate the averaged weights instead of the trained ones");
}

}  // namespace oarlock
