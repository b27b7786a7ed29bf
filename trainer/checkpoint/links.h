// The names "best" and "last" of a checkpoint folder: each points to one of its checkpoints. A name is a symbolic link,
// or, on a file system without them, a file that contains the checkpoint's name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/error.h"

namespace oarlock {

inline constexpr char kBestLink[] = "best";
inline constexpr char kLastLink[] = "last";

// Points root/<name> to `target`, the name of a checkpoint in root; replaces an older link or file in one rename.
// kIoErr and the other codes of fail_errno().
Result<void> set_link(const std::filesystem::path& root, const std::string& name, const std::string& target);

// Where the link or the file points; nothing where there is none, or where it does not contain the name of one of the
// root's checkpoints.
std::optional<std::string> link_target(const std::filesystem::path& root, const std::string& name);

}  // namespace oarlock
