// Which samples a rank sees in an epoch: torch.utils.data.DistributedSampler with its exact permutation, able to start
// inside an epoch.
#pragma once

#include <cstdint>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct SamplerOptions {
  int64_t size = 0;  // samples in the dataset
  int rank = 0;      // 0 .. world_size-1
  int world_size = 1;
  uint64_t seed = 0;       // the same on all ranks
  bool shuffle = true;     // false: in the dataset's order
  bool drop_last = false;  // true: drop the tail that does not divide by world_size; false: pad by starting over
};

// The epoch's order is at::randperm of a CPU generator seeded with seed + epoch, padded or cut to a multiple of the
// world size; rank r takes elements r, r + world, r + 2 world ... So the first k elements of every rank together are
// the first k * world elements of the order, and a position in the epoch is one number for all ranks.
class DistributedSampler {
 public:
  // kConfig: rank or world size out of range. kDataErr: no samples.
  static Result<DistributedSampler> create(const SamplerOptions& options);

  // This rank's indices of the epoch (from 0), after the first `start` samples of the order, which all ranks together
  // have consumed already. `start` may come from a run with another world size: what is left is then split over this
  // one. Empty when nothing is left.
  std::vector<int64_t> indices(int64_t epoch, int64_t start = 0) const;

  // Length of indices(epoch, start): the same on every rank and in every epoch.
  int64_t samples_per_rank(int64_t start = 0) const;

 private:
  explicit DistributedSampler(const SamplerOptions& options) : options_(options) {}
  SamplerOptions options_;
};

}  // namespace oarlock
