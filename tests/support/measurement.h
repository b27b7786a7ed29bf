// Options and functions of tests that measure: environment variables set their size, and they print the results.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace oarlock::test {

// Returns the number in an environment variable; `value` if it is not set.
inline int option(const char* name, int value) {
  const char* text = std::getenv(name);
  return text == nullptr ? value : std::atoi(text);
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the value of a line of /proc/PID/status, such as "VmHWM", in MiB.
inline double memory_of(pid_t pid, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  throw std::runtime_error("no " + name);
}

// Moves a process into a memory cgroup below the one of this program, as a container's memory limit does. It needs
// cgroups of version 1 and the permission to create one; otherwise is_set() is false, and the test has to rely on
// memory_of().
class MemoryLimit {
 public:
  MemoryLimit(pid_t pid, int mib) {
    const std::string own = own_cgroup();
    if (own.empty()) return;
    folder_ = "/sys/fs/cgroup/memory" + own + fmt::format("/oarlock-test-{}", ::getpid());
    std::error_code error;
    is_set_ = std::filesystem::create_directory(folder_, error) &&
              put("memory.limit_in_bytes", std::to_string(int64_t{mib} << 20)) &&
              put("cgroup.procs", std::to_string(pid));
  }
  // The process must have ended.
  ~MemoryLimit() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  bool is_set() const { return is_set_; }

 private:
  static std::string own_cgroup() {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find(":memory:");
      if (at != std::string::npos) return line.substr(at + 8);
    }
    return "";
  }
  bool put(const std::string& file, const std::string& text) const {
    return static_cast<bool>(std::ofstream(folder_ / file) << text << std::flush);
  }

  std::filesystem::path folder_;
  bool is_set_ = false;
};

}  // namespace oarlock::test
