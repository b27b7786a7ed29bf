#include "cli/run/programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>

namespace oarlock::run {
namespace {

bool is_program(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::filesystem::path own_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

Result<std::vector<std::string>> find_program(std::vector<std::string> argv, const std::filesystem::path& folder,
                                              const std::string& path) {
  constexpr char kTrainer[] = "oarlock-trainer";
  if (argv.front() != kTrainer && argv.front() != "oarlock") return argv;
  if (is_program(folder / argv.front())) {
    argv.front() = (folder / argv.front()).string();
    return argv;
  }
  std::istringstream entries(path);
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (is_program(std::filesystem::path(entry) / argv.front())) return argv;
  }
  return fail(ExitCode::kUnavailable, fmt::format("{} is neither in {} nor in PATH; build it (cmake --preset release "
                                                  "&& cmake --build --preset release) or install it there",
                                                  argv.front(), folder.string()));
}

std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int nodes) {
  const auto count = static_cast<size_t>(nodes);
  std::vector<std::vector<int>> parts(count);
  if (count < 2 || cores.size() < count) return parts;
  for (size_t node = 0; node < count; ++node) {
    const size_t begin = cores.size() * node / count;
    const size_t end = cores.size() * (node + 1) / count;
    for (size_t i = begin; i < end; ++i) parts[node].push_back(cores[i]);
  }
  return parts;
}

}  // namespace oarlock::run
