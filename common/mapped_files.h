// The files that are mapped into the memory of this process, so that a SIGBUS can be explained: the kernel sends it for
// an access to a mapped page that it cannot read, because the file was truncated or its disk has failed. Thread-safe.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "common/error.h"

namespace oarlock {

// Called by MappedFile.
void add_mapped_file(const void* begin, size_t size, const std::filesystem::path& path);
void remove_mapped_file(const void* begin);

// Returns why the page at `address` could not be read: kDataErr if the file has become shorter, otherwise kIoErr.
// Returns nothing if no file is mapped there. The handler of a SIGBUS may call this although it takes a lock and
// allocates memory, because the thread that accessed the page is in none of these functions.
std::optional<Error> mapped_file_fault(const void* address);

}  // namespace oarlock
