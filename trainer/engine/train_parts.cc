#include "trainer/engine/train_parts.h"

#include <ATen/Context.h>

#include <mutex>

#include "trainer/data/random.h"

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

// ---- Random streams ----------------------------------------------------------------------------------------------

namespace {
constexpr uint64_t kStepStream = 1;
constexpr uint64_t kEpochStream = 2;
}  // namespace

void seed_model(uint64_t seed) { at::manual_seed(seed); }

void seed_step(uint64_t seed, int rank, int64_t step, c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(mix_seed({kStepStream, seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(step)}));
}

uint64_t epoch_seed(uint64_t seed, int64_t epoch) {
  return mix_seed({kEpochStream, seed, static_cast<uint64_t>(epoch)});
}

}  // namespace oarlock
