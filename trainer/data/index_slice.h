// Which items of a sequence: "::10", "-1", "5:", as Python indexes and slices, and as ase reads part of a file.
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
  bool single = false;  // "5": this item alone

  // "" is all of them. kConfig: anything else that is no index and no slice.
  static Result<IndexSlice> parse(std::string_view text);

  // The indices that it takes of `size` items, in its order. kConfig: a single index that is not among them.
  Result<std::vector<int64_t>> of(int64_t size) const;
};

}  // namespace oarlock
