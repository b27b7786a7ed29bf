// The random streams of a run, all derived from its seed. The numbers of a step depend on (seed, rank, step) only, so a
// resumed run draws the same numbers as one that was not interrupted, and no generator state is saved.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace oarlock {

// Seeds LibTorch's default generators before the model is built, identically on all ranks.
void seed_model(uint64_t seed);

// Seeds the device's default generator for one training step (dropout).
void seed_step(uint64_t seed, int rank, int64_t step, c10::Device device);

// The seed of the data loader: augmentation depends on the epoch and the sample, not on the rank.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

}  // namespace oarlock
