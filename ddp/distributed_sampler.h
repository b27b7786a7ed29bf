// The samples of a rank, with the exact permutation of torch.utils.data.DistributedSampler
// (torch/utils/data/distributed.py). LibTorch's own torch::data::samplers::DistributedRandomSampler has another one.
#pragma once

#include <torch/data/samplers/base.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
// position of all ranks in the epoch.
//
// indices() and samples_per_rank() are thread-safe. The functions of torch::data::samplers::Sampler, which a
// torch::data data loader calls, are not: each loader needs its own copy, which it takes anyway.
class DistributedSampler final : public torch::data::samplers::Sampler<> {
 public:
  // Throws an ErrorException (common/error.h) where create() fails.
  explicit DistributedSampler(const SamplerOptions& options);

  // Returns kConfig if rank or world size are out of range, and kDataErr if the dataset is empty.
  static Result<DistributedSampler> create(const SamplerOptions& options);

  // Returns the indices of this rank in an epoch (from 0), without the first `start` samples of the order, which all
  // ranks together have already consumed. `start` may come from a run with another world size; the remaining samples
  // are distributed over the current one. The result is empty if no samples remain.
  std::vector<int64_t> indices(int64_t epoch, int64_t start = 0) const;

  // Returns the size of indices(epoch, start), which is the same on every rank and in every epoch.
  int64_t samples_per_rank(int64_t start = 0) const;

  const SamplerOptions& options() const { return options_; }

  // ---- for torch::data::make_data_loader() ----

  // Selects the epoch (from 0) of the next reset(), as set_epoch() of Python does. Copies share it, so that a call on
  // the program's sampler reaches the copy that the data loader has taken. Any thread may call this.
  void set_epoch(int64_t epoch) { *epoch_ = epoch; }

  // Begins the epoch. A data loader calls this in begin(). `new_size` must be absent or the size of the dataset.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // Returns the next indices of this rank, fewer than `batch_size` at the end of the epoch, and nothing after it or
  // before the first reset().
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // The epoch and the position in it.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  SamplerOptions options_;
  std::shared_ptr<std::atomic<int64_t>> epoch_ = std::make_shared<std::atomic<int64_t>>(0);
  int64_t begun_epoch_ = 0;
  std::vector<int64_t> indices_;  // of the epoch that reset() has begun
  size_t position_ = 0;           // in indices_
};

}  // namespace oarlock
