#include "trainer/distributed/parameter_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>

namespace oarlock {
namespace {

int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return static_cast<int64_t>(XXH3_64bits(host.data_ptr(), host.nbytes()));
}

std::vector<int64_t> hashes_of(const std::vector<NamedTensor>& tensors) {
  std::vector<int64_t> out;
  out.reserve(tensors.size());
  for (const NamedTensor& item : tensors) out.push_back(hash_of(item.tensor));
  return out;
}

std::vector<int64_t> gather_hash_of_all(const std::vector<int64_t>& hashes, const RankGroup& group) {
  return group.gather(static_cast<int64_t>(XXH3_64bits(hashes.data(), hashes.size() * sizeof(int64_t))));
}

bool all_equal(const std::vector<int64_t>& values) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == values.front(); });
}

}  // namespace

std::vector<int> minority(const std::vector<int64_t>& values) {
  std::ptrdiff_t most = 0;
  int64_t common = 0;
  for (const int64_t value : values) {
    const auto count = std::count(values.begin(), values.end(), value);
    if (count > most) {
      most = count;
      common = value;
    }
  }
  std::vector<int> out;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank] != common) out.push_back(static_cast<int>(rank));
  }
  return out;
}

bool equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const RankGroup& group) {
  return all_equal(gather_hash_of_all(hashes_of(tensors), group));
}

Result<void> check_equal_on_all_ranks(const std::vector<NamedTensor>& tensors, const RankGroup& group) {
  const std::vector<int64_t> hashes = hashes_of(tensors);
  if (all_equal(gather_hash_of_all(hashes, group))) return {};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<int64_t> by_rank = group.gather(hashes[i]);
    if (all_equal(by_rank)) continue;
    const std::vector<int> others = minority(by_rank);
    return fail(
        ExitCode::kSoftware,
        fmt::format("the ranks' parameters diverged: '{}' is the first that differs, on {} {} of {}; look for "
                    "state that a rank changes on its own, or for faulty memory there",
                    tensors[i].name, others.size() == 1 ? "rank" : "ranks", fmt::join(others, ", "), by_rank.size()));
  }
  return fail(ExitCode::kSoftware, "the ranks' parameters diverged: their names are not the same");
}

}  // namespace oarlock
