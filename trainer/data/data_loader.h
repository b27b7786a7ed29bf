// Loads the samples of an epoch: assigns them to ranks, with the exact permutation of
// torch.utils.data.DistributedSampler, and creates the batches of one rank with prefetching threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/error.h"
#include "trainer/data/dataset.h"

namespace oarlock {

struct SamplerOptions {
  int64_t size = 0;  // samples in the dataset
  int rank = 0;      // in [0, world_size)
  int world_size = 1;
  uint64_t seed = 0;       // must be the same on all ranks
  bool shuffle = true;     // false keeps the order of the dataset
  bool drop_last = false;  // true drops the tail that is not divisible by world_size; false pads by repeating samples
};

// The order of an epoch is at::randperm of a CPU generator with the seed seed + epoch, padded or truncated to a
// multiple of the world size. Rank r receives the elements r, r + world_size, r + 2 * world_size, ... So the first k
// elements of all ranks together are the first k * world_size elements of the order, and one number describes the
// position of all ranks in the epoch. Thread-safe.
class DistributedSampler {
 public:
  // Returns kConfig if rank or world size are out of range, and kDataErr if the dataset is empty.
  static Result<DistributedSampler> create(const SamplerOptions& options);

  // Returns the indices of this rank in an epoch (from 0), without the first `start` samples of the order, which all
  // ranks together have already consumed. `start` may come from a run with another world size; the remaining samples
  // are distributed over the current one. The result is empty if no samples remain.
  std::vector<int64_t> indices(int64_t epoch, int64_t start = 0) const;

  // Returns the size of indices(epoch, start), which is the same on every rank and in every epoch.
  int64_t samples_per_rank(int64_t start = 0) const;

  const SamplerOptions& options() const { return options_; }

 private:
  explicit DistributedSampler(const SamplerOptions& options) : options_(options) {}
  SamplerOptions options_;
};

// ---- Loader ------------------------------------------------------------------------------------------------------

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
