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

  // Fills `batch` with the samples of these indices, collated, on the CPU, through Batch::allocate() (collate.h helps).
  // It may hold an older batch of this dataset, whose memory is reused; every batch has the same names. The ids are set
  // already. `seed` is the only randomness that augmentation may use, mixed with each sample's index: a sample then
  // looks the same whichever batch and rank it falls into. Thread-safe.
  virtual void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const = 0;
};

// The samples of these indices as a batch of their own.
inline Batch make_batch(const Dataset& dataset, std::span<const int64_t> indices, uint64_t seed = 0) {
  Batch batch;
  batch.ids.assign(indices.begin(), indices.end());
  dataset.make_batch(indices, seed, batch);
  return batch;
}

}  // namespace oarlock
