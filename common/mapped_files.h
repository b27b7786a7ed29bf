// The files that are mapped into the memory of this process, so that a SIGBUS can be explained: the kernel sends it for
// an access to a mapped page that it cannot read, because the file was truncated or its disk has failed. Thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "common/error.h"

namespace oarlock {

// The number of files that can be recorded at the same time. A SIGBUS of a further file cannot be explained.
inline constexpr size_t kMaxMappedFiles = 1024;

// Called by MappedFile.
void add_mapped_file(const void* begin, size_t size, const std::filesystem::path& path);
void remove_mapped_file(const void* begin);

// Returns why the page at `address` could not be read: kDataErr if the file has become shorter, otherwise kIoErr.
// Returns nothing if no file is mapped there. The handler of a SIGBUS may call this: the search takes no lock and
// allocates no memory, and only the error of a file that was found is formatted with memory of the heap. The thread
// that accessed the page is in no function of the heap, because the pages of files are only read as data.
std::optional<Error> mapped_file_fault(const void* address);

}  // namespace oarlock
