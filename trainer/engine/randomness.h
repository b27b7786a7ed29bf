// The streams of random numbers of a run, all derived from its one seed. A step's numbers depend on (seed, rank, step)
// alone, so that a resumed run draws what the undisturbed one drew, and no generator's state needs to be saved.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace oarlock {

// Seeds LibTorch's default generators: alike on all ranks, before the model is built.
void seed_model(uint64_t seed);

// Seeds the default generator of the device for one training step (dropout).
void seed_step(uint64_t seed, int rank, int64_t step, c10::Device device);

// For the loader: augmentation depends on the epoch and the sample, not on the rank.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

}  // namespace oarlock
