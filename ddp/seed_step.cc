#include "ddp/seed_step.h"

#include <ATen/Context.h>

#include <mutex>

#include "common/mix_seed.h"

namespace oarlock {
namespace {

constexpr uint64_t kStepStream = 1;

}  // namespace

void seed_step(uint64_t seed, int rank, int64_t step, c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(mix_seed({kStepStream, seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(step)}));
}

}  // namespace oarlock
