#include "operator/shell/memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace oarlock::control {
namespace {

// Called for each loaded object: its segments that nobody can have written to are the file's own pages.
int forget_object(dl_phdr_info* object, size_t, void*) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) & ~(page - 1);
    const uintptr_t end = (object->dlpi_addr + segment.p_vaddr + segment.p_memsz + page - 1) & ~(page - 1);
    // MADV_DONTNEED of a private file mapping drops unwritten pages only: they are read from the file again.
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void tune_allocator() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);  // fixed: glibc would raise it after the first large block
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

void give_back_memory() {
  malloc_trim(0);
  dl_iterate_phdr(forget_object, nullptr);
}

}  // namespace oarlock::control
