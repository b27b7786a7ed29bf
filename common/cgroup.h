// The cgroups of this process, whose files limit its memory and its CPU time.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace oarlock {

// Calls fn with the directory of each cgroup that this process is in for a controller, such as "memory", and of its
// parents, up to the one that is mounted: a limit of each of them applies. `is_v2` is true for the unified hierarchy.
// `root` contains proc and sys.
void visit_cgroups(std::string_view controller,
                   const std::function<void(const std::filesystem::path& directory, bool is_v2)>& fn,
                   const std::filesystem::path& root = "/");

// Returns the smallest CPU limit of these cgroups, rounded up; 0 if there is none.
int cgroup_cpus(const std::filesystem::path& root = "/");

}  // namespace oarlock
