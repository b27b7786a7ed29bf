#include "common/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "common/cpu.h"
#include "common/files.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& list, std::string_view controller) {
  std::istringstream names(list);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == controller) return true;
  }
  return false;
}

// Returns 0 if the cgroup itself has no limit.
int limit_in(const fs::path& directory, bool is_v2) {
  if (is_v2) return cpus_from_cpu_max(read_file(directory / "cpu.max").value_or(""));
  const auto quota = read_file(directory / "cpu.cfs_quota_us");
  const auto period = read_file(directory / "cpu.cfs_period_us");
  return quota && period ? cpus_from_cpu_max(*quota + " " + *period) : 0;
}

}  // namespace

void visit_cgroups(std::string_view controller, const std::function<void(const fs::path& directory, bool is_v2)>& fn,
                   const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  // "0::/path", or in version 1 "4:cpu,cpuacct:/path". A path may contain colons.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const bool is_v2 = line.starts_with("0::");
    if (!is_v2 && !contains(line.substr(first + 1, second - first - 1), controller)) continue;
    const fs::path mount = is_v2 ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    fn(mount, is_v2);
    fs::path path = fs::path(line.substr(second + 1)).relative_path();
    for (; !path.empty(); path = path.parent_path()) fn(mount / path, is_v2);
  }
}

int cgroup_cpus(const fs::path& root) {
  int smallest = 0;
  visit_cgroups(
      "cpu",
      [&smallest](const fs::path& directory, bool is_v2) {
        const int limit = limit_in(directory, is_v2);
        if (limit > 0) smallest = smallest > 0 ? std::min(smallest, limit) : limit;
      },
      root);
  return smallest;
}

}  // namespace oarlock
