// Detects that a checkpoint folder is a copy of another one. Both folders have the state of the run, and must not
// report the same run.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace oarlock {

// Returns the place of a folder: "<number of its inode> <absolute path>", in UTF-8. Empty if it does not exist.
std::string place_of(const std::filesystem::path& folder);

// Whether a folder at `place` is a copy of the folder at `earlier`: it has another inode and another path. A folder
// that was renamed, or mounted elsewhere, has the same inode, and one that was restored has the same path. A folder
// that was moved to another file system and another path counts as a copy: its report is split into two runs, while one
// run of two folders would lose the points of one of them. False if one of the places is not known.
bool is_copied(std::string_view earlier, std::string_view place);

}  // namespace oarlock
