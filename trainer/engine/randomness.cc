#include "trainer/engine/randomness.h"

#include <ATen/Context.h>

#include <mutex>

#include "trainer/data/random.h"

namespace oarlock {
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
