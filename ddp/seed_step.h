// Random numbers of a training step, which a step that is repeated draws again.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace oarlock {

// Seeds the device's default generator for one training step (dropout): its numbers depend on these arguments only.
void seed_step(uint64_t seed, int rank, int64_t step, c10::Device device);

}  // namespace oarlock
