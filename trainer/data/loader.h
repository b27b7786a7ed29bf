// The batches of one rank for one epoch, in order, made ahead of time by a few threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/data/dataset.h"

namespace oarlock {

struct LoaderOptions {
  int64_t batch_size = 1;   // samples
  bool drop_last = false;   // drop a last batch that is smaller
  int threads = 1;          // that make batches; 0: next() makes them itself
  int prefetch = 2;         // batches per thread that may lie ready or be under way
  bool pin_memory = false;  // page-locked batches, for CUDA
  uint64_t seed = 0;        // handed to every make_batch. The engine derives it from the run's seed and the epoch, the
                            // same on all ranks, so that augmentation does not depend on the world size
};

// Batch b holds indices[b * batch_size ...]. The sequence is the same whatever `threads` and `prefetch` are. Batches
// are reused: the memory of one that was let go before the next call of next() is filled again (Batch::allocate).
class Loader {
 public:
  // The dataset must outlive the loader. Options out of range throw std::invalid_argument.
  Loader(const Dataset& dataset, std::vector<int64_t> indices, const LoaderOptions& options);
  // May be called at any time: waits only for the make_batch calls under way.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next epoch with the same threads and memory, at the end of a sequence or inside of it. Waits for the make_batch
  // calls under way.
  void begin(std::vector<int64_t> indices, uint64_t seed);

  // The next batch, or nothing after the last. Throws what make_batch threw for this batch (the batches before it were
  // delivered), and again at every later call until begin(). One thread may call it.
  std::optional<Batch> next();

  int64_t batches() const;   // in the whole sequence
  int64_t ready() const;     // batches that lie ready for next(); any thread
  int64_t capacity() const;  // as many may; 0 without threads

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Batches in `samples` samples under these options.
int64_t batch_count(int64_t samples, int64_t batch_size, bool drop_last);

}  // namespace oarlock
