#include "kube/client/memory_shares.h"

#include <algorithm>
#include <functional>
#include <span>

namespace oarlock::kube {
namespace {

struct NamespaceShare {
  size_t bytes = 0;
  std::span<const MemoryShare> objects;
};

// Returns the size to which the largest namespaces must shrink, so that `excess` bytes are saved. REQUIRES: the
// namespaces are sorted, the largest first.
size_t water_level(const std::vector<NamespaceShare>& namespaces, size_t excess) {
  size_t sum = 0;  // of the first namespaces
  for (size_t count = 1; count <= namespaces.size(); ++count) {
    sum += namespaces[count - 1].bytes;
    const size_t next = count < namespaces.size() ? namespaces[count].bytes : 0;
    if (sum - count * next >= excess) return (sum - excess) / count;
  }
  return 0;
}

}  // namespace

std::vector<size_t> choose_excess(std::vector<MemoryShare> shares, size_t excess) {
  std::ranges::stable_sort(shares, [](const MemoryShare& a, const MemoryShare& b) {
    const auto by_name = a.namespace_name <=> b.namespace_name;
    return by_name == 0 ? a.order < b.order : by_name < 0;
  });
  std::vector<NamespaceShare> namespaces;
  for (auto begin = shares.begin(); begin != shares.end();) {
    const auto end = std::find_if(
        begin, shares.end(), [&](const MemoryShare& share) { return share.namespace_name != begin->namespace_name; });
    NamespaceShare& added = namespaces.emplace_back(NamespaceShare{.objects = {begin, end}});
    for (const MemoryShare& share : added.objects) added.bytes += share.bytes;
    begin = end;
  }
  std::ranges::stable_sort(namespaces, std::greater(), &NamespaceShare::bytes);
  const size_t level = water_level(namespaces, excess);
  std::vector<size_t> chosen;
  size_t saved = 0;
  for (NamespaceShare& largest : namespaces) {
    for (const MemoryShare& object : largest.objects) {
      if (saved >= excess || largest.bytes <= level) break;
      chosen.push_back(object.index);
      saved += object.bytes;
      largest.bytes -= object.bytes;
    }
  }
  return chosen;
}

}  // namespace oarlock::kube
