#include "ddp/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace oarlock {
namespace {

// Returns the order of an epoch before padding.
std::vector<int64_t> epoch_order(const SamplerOptions& options, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(options.size));
  if (!options.shuffle) {
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed + static_cast<uint64_t>(epoch));
  const at::Tensor permutation = at::randperm(options.size, generator, at::TensorOptions().dtype(at::kLong));
  std::copy_n(permutation.const_data_ptr<int64_t>(), options.size, order.begin());
  return order;
}

Result<void> check(const SamplerOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return fail(ExitCode::kConfig, fmt::format("sampler: rank {} is not in [0, world_size) for world_size {}",
                                               options.rank, options.world_size));
  }
  if (options.size < 1) {
    return fail(ExitCode::kDataErr, "sampler: the dataset has no samples; check its files");
  }
  return {};
}

constexpr char kEpochKey[] = "epoch";
constexpr char kStartKey[] = "start";

}  // namespace

DistributedSampler::DistributedSampler(const SamplerOptions& options) : options_(options) {
  if (const Result<void> valid = check(options); !valid) throw ErrorException(valid.error());
}

Result<DistributedSampler> DistributedSampler::create(const SamplerOptions& options) {
  if (const Result<void> valid = check(options); !valid) return tl::make_unexpected(valid.error());
  return DistributedSampler(options);
}

int64_t DistributedSampler::samples_per_rank(int64_t start) const {
  const int64_t remaining = std::max<int64_t>(options_.size - std::max<int64_t>(start, 0), 0);
  return options_.drop_last ? remaining / options_.world_size
                            : (remaining + options_.world_size - 1) / options_.world_size;
}

std::vector<int64_t> DistributedSampler::indices(int64_t epoch, int64_t start) const {
  const int64_t count = samples_per_rank(start);
  if (count == 0) return {};
  const std::vector<int64_t> order = epoch_order(options_, epoch);
  std::vector<int64_t> selected(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = std::max<int64_t>(start, 0) + options_.rank + i * options_.world_size;
    selected[static_cast<size_t>(i)] =
        order[static_cast<size_t>(position % options_.size)];  // wraps around for padding
  }
  return selected;
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size && static_cast<int64_t>(*new_size) != options_.size) {
    throw ErrorException({ExitCode::kConfig, fmt::format("sampler: the dataset has {} samples, not {}; create the "
                                                         "sampler with the size of the dataset",
                                                         *new_size, options_.size)});
  }
  const std::lock_guard lock(state_->mutex);
  if (std::exchange(state_->is_loaded, false) && state_->epoch == state_->begun_epoch && state_->start == 0) return;
  begin(*state_);
}

void DistributedSampler::begin(State& state) const {
  state.begun_epoch = state.epoch;
  state.begun_start = std::exchange(state.start, 0);
  state.indices = indices(state.begun_epoch, state.begun_start);
  state.position = 0;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  const std::lock_guard lock(state_->mutex);
  state_->is_loaded = false;
  const size_t count = std::min(batch_size, state_->indices.size() - state_->position);
  if (count == 0) return std::nullopt;
  const auto first = state_->indices.begin() + static_cast<std::ptrdiff_t>(state_->position);
  state_->position += count;
  return std::vector<size_t>(first, first + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::set_epoch(int64_t epoch, int64_t start) {
  const std::lock_guard lock(state_->mutex);
  state_->epoch = epoch;
  state_->start = start;
}

int64_t DistributedSampler::epoch() const {
  const std::lock_guard lock(state_->mutex);
  return state_->epoch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const std::lock_guard lock(state_->mutex);
  // set_epoch() may have selected what no reset() has begun.
  const bool has_begun = state_->epoch == state_->begun_epoch && state_->start == 0;
  const int64_t begun = state_->begun_start + static_cast<int64_t>(state_->position) * options_.world_size;
  const int64_t start = has_begun ? begun : state_->start;
  archive.write(kEpochKey, at::tensor(state_->epoch, at::kLong), /*is_buffer=*/true);
  archive.write(kStartKey, at::tensor(start, at::kLong), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor epoch;
  at::Tensor start;
  archive.read(kEpochKey, epoch, /*is_buffer=*/true);
  archive.read(kStartKey, start, /*is_buffer=*/true);
  const std::lock_guard lock(state_->mutex);
  state_->epoch = epoch.item<int64_t>();
  state_->start = start.item<int64_t>();
  begin(*state_);
  state_->is_loaded = true;
}

}  // namespace oarlock
