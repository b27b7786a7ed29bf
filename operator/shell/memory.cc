#include "operator/shell/memory.h"

#include <malloc.h>

namespace oarlock::control {

void tune_allocator() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // fixed: glibc would raise it after the first large block
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

void trim_heap() { malloc_trim(0); }

}  // namespace oarlock::control
