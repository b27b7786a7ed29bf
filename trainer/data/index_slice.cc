#include "trainer/data/index_slice.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/number.h"

namespace oarlock {
namespace {

// Returns an empty number for an empty text, and nothing if the text is invalid.
std::optional<std::optional<int64_t>> parse_number(std::string_view text) {
  if (text.empty()) return std::optional<int64_t>();
  const std::optional<int64_t> value = parse_integer<int64_t>(text);
  if (!value) return std::nullopt;
  return value;
}

// Resolves a negative index and clamps it to the sequence, like PySlice_AdjustIndices of CPython.
int64_t adjust(int64_t index, int64_t size, bool backwards) {
  if (index < 0) return std::max(index + size, backwards ? int64_t{-1} : int64_t{0});
  return std::min(index, backwards ? size - 1 : size);
}

}  // namespace

Result<IndexSlice> IndexSlice::parse(std::string_view text) {
  std::vector<std::optional<int64_t>> numbers;
  for (std::string_view rest = text;;) {
    const size_t colon = rest.find(':');
    const auto value = parse_number(rest.substr(0, colon));
    if (!value || numbers.size() == 3) {
      return fail(ExitCode::kConfig,
                  fmt::format("'{}' is not an index or slice: write start:stop:step, for example ::10", text));
    }
    numbers.push_back(*value);
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  IndexSlice slice;
  slice.start = numbers[0];
  slice.single = numbers.size() == 1 && numbers[0].has_value();
  if (numbers.size() > 1) slice.stop = numbers[1];
  if (numbers.size() > 2) slice.step = numbers[2].value_or(1);
  if (slice.step == 0) return fail(ExitCode::kConfig, fmt::format("'{}': the step must not be 0", text));
  return slice;
}

Result<std::vector<int64_t>> IndexSlice::indices(int64_t size) const {
  if (single) {
    const int64_t index = *start < 0 ? *start + size : *start;
    if (index < 0 || index >= size)
      return fail(ExitCode::kConfig, fmt::format("index {} is out of range for {} structures", *start, size));
    return std::vector{index};
  }
  const bool backwards = step < 0;
  const int64_t first = start ? adjust(*start, size, backwards) : (backwards ? size - 1 : 0);
  const int64_t last = stop ? adjust(*stop, size, backwards) : (backwards ? -1 : size);
  if (backwards ? first <= last : first >= last) return std::vector<int64_t>();
  // Unsigned, because first + step may be out of the range of int64_t.
  const uint64_t distance = backwards ? static_cast<uint64_t>(first - last) : static_cast<uint64_t>(last - first);
  const uint64_t stride = backwards ? -static_cast<uint64_t>(step) : static_cast<uint64_t>(step);
  std::vector<int64_t> selected;
  for (uint64_t i = 0; i < distance; i += stride) {
    selected.push_back(backwards ? first - static_cast<int64_t>(i) : first + static_cast<int64_t>(i));
    if (stride > distance - i) break;
  }
  return selected;
}

}  // namespace oarlock
