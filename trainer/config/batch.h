// The section "batch": how many samples a step takes.
#pragma once

#include "common/error.h"
#include "trainer/config/fields.h"

namespace oarlock {

enum class BatchPer { kDevice, kGlobal };

struct BatchConfig {
  int64_t size = 64;
  BatchPer per = BatchPer::kDevice;  // global: divided by the world size, which must divide it
  bool drop_last = false;            // drop an epoch's incomplete last batch
};

void describe(BatchConfig& config, Fields& fields);

// Samples that one rank takes per step. kConfig when a global batch does not divide by the world size.
Result<int64_t> batch_size_per_rank(const BatchConfig& batch, int world_size);

}  // namespace oarlock
