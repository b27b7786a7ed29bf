// Finds Oarlock's programs, and distributes the cores of this machine over nodes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock::run {

// Returns the folder of the running program.
std::filesystem::path own_folder();

// If the first word of the command is `oarlock-trainer` or `oarlock`, replaces it with the program in `folder`, so that
// a build folder works without PATH. Fails with kUnavailable if the program is neither in `folder` nor in `path` (a
// PATH).
Result<std::vector<std::string>> find_program(std::vector<std::string> argv, const std::filesystem::path& folder,
                                              const std::string& path);

// Divides the cores equally among the nodes that share this machine. With one node, or more nodes than cores, the parts
// are empty, which means that each node may use all cores.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int nodes);

}  // namespace oarlock::run
