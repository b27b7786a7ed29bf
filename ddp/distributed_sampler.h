// The samples of a rank, with the exact permutation of torch.utils.data.DistributedSampler
// (torch/utils/data/distributed.py). LibTorch's own torch::data::samplers::DistributedRandomSampler has another one.
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
// Thread-safe. A torch::data data loader copies its sampler. Copies share the epoch and the position, so that calls on
// the program's sampler apply to the loader; each loader needs a separate sampler.
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

  // Selects the epoch (from 0) of the next reset(), as set_epoch() of Python does. That reset() begins after the first
  // `start` samples of the order, as indices() does.
  void set_epoch(int64_t epoch, int64_t start = 0);
  // The epoch that set_epoch() or load() selected.
  int64_t epoch() const;

  // Begins the epoch. A data loader calls this in begin(). The first reset() after load() continues at the loaded
  // position unless next() was called or another epoch was selected. `new_size` must be absent or the size of the
  // dataset.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // Returns the next indices of this rank, fewer than `batch_size` at the end of the epoch, and nothing after it or
  // before the first reset().
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // The epoch and the position in it, after the indices that next() has returned. A data loader with workers
  // prefetches: `start` of set_epoch() is then the number of samples that all ranks together have consumed. Another
  // number of ranks can load the position.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  struct State {
    std::mutex mutex;
    int64_t epoch = 0;             // of the next reset()
    int64_t start = 0;             // of the next reset()
    bool is_loaded = false;        // whether the next reset() keeps the position
    int64_t begun_epoch = 0;       // that reset() has begun
    int64_t begun_start = 0;       // at which reset() has begun
    std::vector<int64_t> indices;  // of begun_epoch, from begun_start
    size_t position = 0;           // in `indices`
  };
  void begin(State& state) const;

  SamplerOptions options_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace oarlock
