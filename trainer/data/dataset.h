// The interface of datasets. A dataset creates whole batches, so that it can gather many samples at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trainer/data/batch.h"

namespace oarlock {

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;  // samples

  // Fills `batch` with the collated samples of these indices on the CPU, through Batch::allocate() (see batch.h).
  // batch.ids is already set. `batch` may contain an older batch of this dataset, whose memory is reused; every batch
  // must have the same tensor names. Augmentation may use no randomness but `seed`, mixed with the index of each
  // sample, so that a sample looks the same in every batch and on every rank. Must be thread-safe. Exceptions are
  // rethrown by DataLoader::next().
  virtual void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const = 0;

  // A fingerprint of the content of the samples (fingerprint.h), by which the engine detects ranks with different data,
  // and data that changed since a checkpoint. It must not depend on paths, times or the machine. Called once. Default:
  // empty, and only the sizes are compared.
  virtual std::string fingerprint() const { return ""; }
};

// Returns a new batch with the samples of these indices.
inline Batch make_batch(const Dataset& dataset, std::span<const int64_t> indices, uint64_t seed = 0) {
  Batch batch;
  batch.ids.assign(indices.begin(), indices.end());
  dataset.make_batch(indices, seed, batch);
  return batch;
}

}  // namespace oarlock
