// Assigns the samples of an epoch to ranks, with the exact permutation of torch.utils.data.DistributedSampler.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"

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

 private:
  explicit DistributedSampler(const SamplerOptions& options) : options_(options) {}
  SamplerOptions options_;
};

}  // namespace oarlock
