// Indices and slices in the syntax of Python, for example "::10", "-1" or "5:", by which ase selects the frames of a
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct IndexSlice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;     // not 0
  bool single = false;  // an index, not a slice: only the item `start`

  // Parses an index or a slice. An empty text selects all items. Returns kConfig if it is invalid.
  static Result<IndexSlice> parse(std::string_view text);

  // Returns the selected indices of a sequence of `size` items, in the order of the slice. Returns kConfig if a single
  // index is out of range.
  Result<std::vector<int64_t>> indices(int64_t size) const;
};

}  // namespace oarlock
