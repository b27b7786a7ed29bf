// The names "best" and "last" of a checkpoint folder: symbolic links to one of its checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/error.h"

namespace oarlock {

inline constexpr char kBestLink[] = "best";
inline constexpr char kLastLink[] = "last";

// root/<name> -> target, which lies in root; replaces an older link in one rename. kUnavailable where the file system
// has no symbolic links; kIoErr and the like.
Result<void> set_link(const std::filesystem::path& root, const std::string& name, const std::string& target);

// Where it points; nothing where there is no such link.
std::optional<std::string> link_target(const std::filesystem::path& root, const std::string& name);

}  // namespace oarlock
