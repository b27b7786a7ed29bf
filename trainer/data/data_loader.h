// Creates the batches of one rank with prefetching threads. ddp/distributed_sampler.h assigns the samples to ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/data/dataset.h"

namespace oarlock {

struct DataLoaderOptions {
  int64_t batch_size = 1;   // samples
  bool drop_last = false;   // drop the last batch if it is smaller than batch_size
  int threads = 1;          // threads that create batches; 0: next() creates them in the calling thread
  int prefetch = 2;         // batches per thread that may be prefetched or in progress
  bool pin_memory = false;  // allocate batches in page-locked memory, for asynchronous copies to CUDA
  uint64_t seed = 0;        // passed to every make_batch(). The engine derives it from the seed of the run and the
                            // epoch, the same on all ranks, so that augmentation does not depend on the world size
};

// Returns the batches of a sequence of sample indices in order: batch b consists of the samples
// indices[b * batch_size ...]. The sequence does not depend on `threads` and `prefetch`. The memory of a batch that was
// released before the next call of next() is reused (see Batch::allocate()).
class DataLoader {
 public:
  // `dataset` must outlive the loader. Throws std::invalid_argument if an option is out of range.
  DataLoader(const Dataset& dataset, std::vector<int64_t> indices, const DataLoaderOptions& options);

  // May be called at any time. Waits only for the calls of make_batch() in progress.
  ~DataLoader();

  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Starts a new sequence, for example the next epoch, with the same threads and memory. The current sequence need not
  // be finished. Waits for the calls of make_batch() in progress. Must be called by the thread that calls next().
  void reset(std::vector<int64_t> indices, uint64_t seed);

  // Returns the next batch, or nothing after the last one. If make_batch() threw for this batch, rethrows its
  // exception, after all earlier batches were returned, and again in every later call until reset(). Must always be
  // called by the same thread.
  std::optional<Batch> next();

  int64_t batches() const;            // batches of the whole sequence
  int64_t prefetched() const;         // batches that next() can return immediately; may be called by any thread
  int64_t prefetch_capacity() const;  // maximum of prefetched(); 0 without threads

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the number of batches of `samples` samples.
int64_t batch_count(int64_t samples, int64_t batch_size, bool drop_last);

}  // namespace oarlock
