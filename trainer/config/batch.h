// The section "batch": how many samples a step takes.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class BatchPer { kDevice, kGlobal };

struct BatchConfig {
  // device: of one rank's forward pass. global: of the whole optimizer step, over all ranks and accumulation steps,
  // whose product must divide it.
  int64_t size = 64;
  BatchPer per = BatchPer::kDevice;
  bool drop_last = false;  // drop an epoch's last step where it is not full
};

void describe(BatchConfig& config, Fields& fields);

}  // namespace oarlock
