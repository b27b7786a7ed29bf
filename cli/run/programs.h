// Where Oarlock's own programs are.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock::run {

std::filesystem::path own_folder();  // of this program's file

// The command with `oarlock-trainer` or `oarlock` as its first word replaced by the one beside this program, so that a
// build folder works without PATH. kUnavailable when oarlock-trainer is neither there nor in `path` (a PATH).
Result<std::vector<std::string>> find_program(std::vector<std::string> argv, const std::filesystem::path& beside,
                                              const std::string& path);

// The cores of each node when nodes share a machine: an equal part each, as pods have their own. Empty parts (everyone
// may use all) with one node, or more nodes than cores.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int nodes);

}  // namespace oarlock::run
