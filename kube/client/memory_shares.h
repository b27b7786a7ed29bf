// Decides which objects of a cache are dropped when they exceed its memory limit.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace oarlock::kube {

// The order in which objects of one namespace are dropped, the smallest value first.
struct DropOrder {
  int rank = 0;
  int64_t then_by = 0;

  auto operator<=>(const DropOrder&) const = default;
};

struct MemoryShare {
  std::string_view namespace_name;
  size_t bytes = 0;
  DropOrder order{};
  size_t index = 0;  // of the object, for the caller
};

// Returns the indexes of objects that take at least `excess` bytes together, or all if they take less. They are chosen
// from the namespaces with the largest sums, so that these become equally large and the others keep their objects;
// within a namespace in the order of MemoryShare::order.
std::vector<size_t> choose_excess(std::vector<MemoryShare> shares, size_t excess);

}  // namespace oarlock::kube
