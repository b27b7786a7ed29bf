#include "common/mapped_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace oarlock {
namespace {

// The mapped range [begin, end) of a file. Only the thread that has taken the slot changes the other members.
struct Slot {
  std::atomic<bool> is_taken;
  std::atomic<uint32_t> version;  // odd while the range changes
  std::atomic<uintptr_t> begin;
  std::atomic<uintptr_t> end;  // 0: no range
  // Owned. Read only by a thread that holds the mapping, so that it does not change meanwhile.
  std::atomic<const std::filesystem::path*> path;
};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uintptr_t>::is_always_lock_free);

// A table of the process, because the kernel calls the handler of a signal without an argument other than the address,
// and a mapping is a resource of the process. It is initialized at compile time and never destroyed, so that files of
// static objects can be unmapped at the exit of the process.
constinit std::array<Slot, kMaxMappedFiles> slots{};

uintptr_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

void set_range(Slot& slot, uintptr_t begin, uintptr_t end) {
  ++slot.version;
  slot.begin = begin;
  slot.end = end;
  ++slot.version;
}

// Whether the range of the slot contains the address. A range that another thread changes at the same time is not that
// of a mapping that this thread accesses.
bool contains(const Slot& slot, uintptr_t address) {
  const uint32_t version = slot.version;
  const uintptr_t begin = slot.begin;
  const uintptr_t end = slot.end;
  return version % 2 == 0 && slot.version == version && begin <= address && address < end;
}

const Slot* find_slot(uintptr_t address) {
  for (const Slot& slot : slots) {
    if (contains(slot, address)) return &slot;
  }
  return nullptr;
}

}  // namespace

void add_mapped_file(const void* begin, size_t size, const std::filesystem::path& path) {
  auto owned = std::make_unique<const std::filesystem::path>(path);
  for (Slot& slot : slots) {
    if (slot.is_taken || slot.is_taken.exchange(true)) continue;
    slot.path = owned.release();
    set_range(slot, number_of(begin), number_of(begin) + size);
    return;
  }
}

void remove_mapped_file(const void* begin) {
  for (Slot& slot : slots) {
    if (slot.end == 0 || slot.begin != number_of(begin)) continue;
    set_range(slot, 0, 0);
    const std::unique_ptr<const std::filesystem::path> owned(slot.path.exchange(nullptr));
    slot.is_taken = false;
    return;
  }
}

std::optional<Error> mapped_file_fault(const void* address) {
  const Slot* const slot = find_slot(number_of(address));
  if (slot == nullptr) return std::nullopt;
  const std::filesystem::path& path = *slot->path;
  const uintptr_t size = slot->end - slot->begin;
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && std::cmp_less(status.st_size, size)) {
    return Error{ExitCode::kDataErr,
                 fmt::format("{}: was truncated from {} to {} bytes while it was read; put the file back, and do not "
                             "change files that a run uses",
                             path.string(), size, status.st_size)};
  }
  return Error{ExitCode::kIoErr,
               fmt::format("{}: cannot be read: the disk or the file server reported an error (SIGBUS); see the "
                           "kernel log of the node",
                           path.string())};
}

}  // namespace oarlock
