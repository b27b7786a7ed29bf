// File functions. Errors name the path; their exit code depends on errno (fail_errno()).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// Returns the content of a file, or its first `max_bytes` bytes.
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes = SIZE_MAX);

// Replaces the content of a file atomically and durably: writes a temporary file, syncs it, renames it, and syncs the
// folder. After a crash the file has either the old or the new content.
Result<void> write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Creates a folder with its parents, durably. Fails with kCantCreate if the folder cannot be created, or exists and is
// not writable.
Result<void> make_writable_folder(const std::filesystem::path& path);

// Calls fsync(2) on a closed file.
Result<void> sync_file(const std::filesystem::path& path);

// Calls fsync(2) on a folder, which makes renames in it durable.
Result<void> sync_folder(const std::filesystem::path& path);

}  // namespace oarlock
