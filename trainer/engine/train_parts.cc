#include "trainer/engine/train_parts.h"

namespace oarlock {

DataLoaderOptions loader_options(const TrainerConfig& config, at::Device device, int64_t batch_size, uint64_t seed) {
  return {.batch_size = batch_size,
          .drop_last = false,
          .threads = static_cast<int>(config.loader.threads.value_or(1)),
          .prefetch = config.loader.prefetch,
          .pin_memory = config.loader.pin_memory && device.is_cuda(),
          .seed = seed};
}

PrefetchOptions feed_options(const TrainerConfig& config, int world_size) {
  PrefetchOptions out{.channels_last = config.cuda.channels_last};
  if (world_size > 1)
    out.timeout = std::chrono::milliseconds(static_cast<int64_t>(config.distributed.timeout_seconds * 1000));
  return out;
}

}  // namespace oarlock
