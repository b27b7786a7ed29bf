// The names of the temporary files that write_file_atomically() renames (common/files.h), and of those that killed
// processes left.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace oarlock {

// Returns a name next to `path` that no other process uses, on any node.
std::filesystem::path new_temporary_path(const std::filesystem::path& path);

// Returns the temporary files in a directory, also those of earlier releases, in no particular order: those of the file
// `name`, or of all files if it is empty. They remain from killed processes, or belong to a running one, so that only a
// caller that excludes other writers of these files may remove them.
std::vector<std::filesystem::path> temporary_files(const std::filesystem::path& directory, std::string_view name = {});

}  // namespace oarlock
