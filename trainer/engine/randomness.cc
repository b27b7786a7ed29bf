#include "trainer/engine/randomness.h"

#include <ATen/Context.h>

#include <mutex>

namespace oarlock {
namespace {
constexpr uint64_t kStepStream = 1;
constexpr uint64_t kEpochStream = 2;
}  // namespace

uint64_t mix_seed(std::initializer_list<uint64_t> parts) {
  uint64_t state = 0;
  for (const uint64_t part : parts) {
    state += part + 0x9e3779b97f4a7c15ULL;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebULL;
    state ^= state >> 31;
  }
  return state;
}

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
