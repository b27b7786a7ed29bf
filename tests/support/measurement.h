// Options and functions of tests that measure: environment variables set their size, and they print the results.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace oarlock::test {

// Whether the programs are built with sanitizers, which multiply their time and memory. Limits do not apply to them.
#ifdef OARLOCK_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

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

// Expects that a process has taken at most this much memory.
inline void expect_memory_within(double mib, double limit) {
  if (kSanitized) return;
  EXPECT_LE(mib, limit) << "MiB";
}

// Moves a process into a memory cgroup, as a container's memory limit does. The cgroup is below that of this program;
// with cgroups of version 2 it may be next to it, because a cgroup with processes has no children with controllers.
// Without the permission to create one, and with sanitizers, is_set() is false, and the test has to rely on
// memory_of().
class MemoryLimit {
 public:
  MemoryLimit(pid_t pid, int mib) {
    if (kSanitized) return;
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; !is_set_ && std::getline(file, line);) {
      const std::filesystem::path own = std::filesystem::path(line.substr(line.rfind(':') + 1)).relative_path();
      if (line.find(":memory:") != std::string::npos) {
        is_set_ = set("/sys/fs/cgroup/memory" / own, "memory.limit_in_bytes", pid, mib);
      } else if (line.starts_with("0::")) {
        is_set_ = set("/sys/fs/cgroup" / own, "memory.max", pid, mib) ||
                  set("/sys/fs/cgroup" / own.parent_path(), "memory.max", pid, mib);
      }
    }
  }
  // The process must have ended.
  ~MemoryLimit() {
    if (is_set_) ::rmdir(directory_.c_str());
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  bool is_set() const { return is_set_; }

 private:
  bool set(const std::filesystem::path& parent, const std::string& limit, pid_t pid, int mib) {
    directory_ = parent / fmt::format("oarlock-test-{}", ::getpid());
    std::error_code error;
    if (!std::filesystem::create_directory(directory_, error)) return false;
    if (put(limit, std::to_string(int64_t{mib} << 20)) && put("cgroup.procs", std::to_string(pid))) return true;
    ::rmdir(directory_.c_str());
    return false;
  }
  // Does not create the file, as opening it for writing alone would do in a directory that is not a cgroup.
  bool put(const std::string& file, const std::string& text) const {
    return static_cast<bool>(std::ofstream(directory_ / file, std::ios::in | std::ios::out) << text << std::flush);
  }

  std::filesystem::path directory_;
  bool is_set_ = false;
};

}  // namespace oarlock::test
