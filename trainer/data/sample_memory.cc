#include "trainer/data/sample_memory.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace oarlock {

at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor out = at::empty(sizes, type);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(out.data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + out.nbytes()) / page * page;
  // A wish: where it is not granted, the pages are small ones.
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return out;
}

}  // namespace oarlock
