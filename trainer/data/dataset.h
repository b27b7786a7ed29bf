// A dataset gives batches by index, so that it can gather many samples at once instead of one at a time.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/data/batch.h"

namespace oarlock {

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  // The samples with these indices, collated, on the CPU. `seed` is the only randomness that augmentation may use,
  // mixed with each sample's index: a sample then looks the same whichever batch and rank it falls into. Thread-safe.
  virtual Batch make_batch(std::span<const int64_t> indices, uint64_t seed) const = 0;
};

}  // namespace oarlock
