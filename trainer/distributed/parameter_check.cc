#include "trainer/distributed/parameter_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>

namespace oarlock {
namespace {

int64_t hash(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return static_cast<int64_t>(XXH3_64bits(host.data_ptr(), host.nbytes()));
}

std::vector<int64_t> hash_each(const std::vector<NamedTensor>& tensors) {
  std::vector<int64_t> out;
  out.reserve(tensors.size());
  for (const NamedTensor& item : tensors) out.push_back(hash(item.tensor));
  return out;
}

std::vector<int64_t> gather_combined_hash(const std::vector<int64_t>& hashes, const ProcessGroup& group) {
  return group.all_gather(static_cast<int64_t>(XXH3_64bits(hashes.data(), hashes.size() * sizeof(int64_t))));
}

bool all_equal(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values.front(); });
}

}  // namespace

std::vector<int> minority(const std::vector<int64_t>& values) {
  std::ptrdiff_t highest_count = 0;
  int64_t majority = 0;
  for (const int64_t value : values) {
    const auto count = std::count(values.begin(), values.end(), value);
    if (count > highest_count) {
      highest_count = count;
      majority = value;
    }
  }
  std::vector<int> out;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != majority) out.push_back(static_cast<int>(rank));
  }
  return out;
}

bool equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group) {
  return all_equal(gather_combined_hash(hash_each(tensors), group));
}

Result<void> check_equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const ProcessGroup& group) {
  const std::vector<int64_t> hashes = hash_each(tensors);
  if (all_equal(gather_combined_hash(hashes, group))) return {};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<int64_t> by_rank = group.all_gather(hashes[i]);
    if (all_equal(by_rank)) continue;
    const std::vector<int> deviating = minority(by_rank);
    return fail(ExitCode::kSoftware,
                fmt::format("the ranks' parameters diverged: '{}' is the first that differs, on {} {} of {}; check for "
                            "state that differs between ranks, and for faulty memory there",
                            tensors[i].name, deviating.size() == 1 ? "rank" : "ranks", fmt::join(deviating, ", "),
                            by_rank.size()));
  }
  return fail(ExitCode::kSoftware, "the ranks' parameters diverged: their names differ");
}

}  // namespace oarlock
