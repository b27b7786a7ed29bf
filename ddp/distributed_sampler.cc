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
constexpr char kPositionKey[] = "position";

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
  begun_epoch_ = *epoch_;
  indices_ = indices(begun_epoch_);
  position_ = 0;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  const size_t count = std::min(batch_size, indices_.size() - position_);
  if (count == 0) return std::nullopt;
  const auto begin = indices_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += count;
  return std::vector<size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write(kEpochKey, at::tensor(begun_epoch_, at::kLong), /*is_buffer=*/true);
  archive.write(kPositionKey, at::tensor(static_cast<int64_t>(position_), at::kLong), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  at::Tensor epoch;
  at::Tensor position;
  archive.read(kEpochKey, epoch, /*is_buffer=*/true);
  archive.read(kPositionKey, position, /*is_buffer=*/true);
  set_epoch(epoch.item<int64_t>());
  reset();
  position_ = std::min(static_cast<size_t>(std::max<int64_t>(position.item<int64_t>(), 0)), indices_.size());
}

}  // namespace oarlock
