#include "trainer/data/sample_memory.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <cstdint>

namespace oarlock {
namespace {

constexpr uintptr_t kPage = 4096;

}  // namespace

at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor out = at::empty(sizes, type);
  const auto begin = reinterpret_cast<uintptr_t>(out.data_ptr());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t last = (begin + out.nbytes()) / kPage * kPage;
  // A wish: where it is not granted, the pages are small ones.
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return out;
}

}  // namespace oarlock
