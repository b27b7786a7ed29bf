#include "common/mapped_files.h"

#include <fmt/format.h>

#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace oarlock {
namespace {

struct Mapping {
  size_t size = 0;
  std::filesystem::path path;
};

struct Mappings {
  std::mutex mutex;
  std::map<const char*, Mapping, std::less<>> by_address;  // guarded by mutex
};

// Is never destroyed, because files of static objects are unmapped later.
Mappings& mappings() {
  static auto* const instance = new Mappings;
  return *instance;
}

}  // namespace

void add_mapped_file(const void* begin, size_t size, const std::filesystem::path& path) {
  const std::lock_guard lock(mappings().mutex);
  mappings().by_address[static_cast<const char*>(begin)] = {size, path};
}

void remove_mapped_file(const void* begin) {
  const std::lock_guard lock(mappings().mutex);
  mappings().by_address.erase(static_cast<const char*>(begin));
}

std::optional<Error> mapped_file_fault(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  Mapping mapping;
  {
    const std::lock_guard lock(mappings().mutex);
    const auto after = mappings().by_address.upper_bound(at);
    if (after == mappings().by_address.begin()) return std::nullopt;
    const auto& [begin, found] = *std::prev(after);
    if (std::less_equal<>()(begin + found.size, at)) return std::nullopt;
    mapping = found;
  }
  std::error_code unknown;
  const auto size = std::filesystem::file_size(mapping.path, unknown);
  if (!unknown && size < mapping.size) {
    return Error{ExitCode::kDataErr,
                 fmt::format("{}: was truncated from {} to {} bytes while it was read; put the file back, and do not "
                             "change files that a run uses",
                             mapping.path.string(), mapping.size, size)};
  }
  return Error{ExitCode::kIoErr,
               fmt::format("{}: cannot be read: the disk or the file server reported an error (SIGBUS); see the "
                           "kernel log of the node",
                           mapping.path.string())};
}

}  // namespace oarlock
