#include "trainer/config/batch.h"

#include <fmt/format.h>

namespace oarlock {

void describe(BatchConfig& config, Fields& fields) {
  fields.field("size", config.size, at_least(1), "samples per step");
  fields.choice<BatchPer>("per", config.per, {{"device", BatchPer::kDevice}, {"global", BatchPer::kGlobal}},
                          "whose batch size is meant: each rank's, or that of all ranks together");
  fields.field("drop_last", config.drop_last, "drop an epoch's last batch where it is not full");
}

Result<int64_t> batch_size_per_rank(const BatchConfig& batch, int world_size) {
  if (batch.per == BatchPer::kDevice) return batch.size;
  if (batch.size % world_size != 0) {
    return fail(ExitCode::kConfig,
                fmt::format("batch: a global batch of {} does not divide by {} ranks; choose a multiple of {}",
                            batch.size, world_size, world_size));
  }
  return batch.size / world_size;
}

}  // namespace oarlock
