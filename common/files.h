// Small file helpers whose failures are Results that name the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// The content of a file, or its first `most` bytes.
Result<std::string> read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

// Replaces the file's content in one step that survives a crash: temporary file, fsync, rename, fsync of the folder.
Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content);

// mkdir -p, and fsync of the parent of each folder that it makes. A folder that exists and cannot be written to is an
// error too.
Result<void> make_writable_folder(const std::filesystem::path& path);

// fsync of a file that was written and closed.
Result<void> sync_file(const std::filesystem::path& path);

// fsync of a folder: makes renames in it durable.
Result<void> sync_folder(const std::filesystem::path& path);

}  // namespace oarlock
