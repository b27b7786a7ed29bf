#include "trainer/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>

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

}  // namespace

Result<DistributedSampler> DistributedSampler::create(const SamplerOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return fail(ExitCode::kConfig, fmt::format("sampler: rank {} is not in [0, world_size) for world_size {}",
                                               options.rank, options.world_size));
  }
  if (options.size < 1) {
    return fail(ExitCode::kDataErr, "sampler: the dataset has no samples; check the data section of the config");
  }
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

}  // namespace oarlock
