// The number of CPUs that this process may use, and a limit of the CPU time of a thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/clock.h"

namespace oarlock {

// The number of ranks that share the CPUs to which a launcher has bound this rank. If the variable is not set, all
// ranks of the node share them.
inline constexpr char kEnvCpuSharers[] = "OARLOCK_CPU_SHARERS";

// Returns the smaller of the process's CPU affinity and its container's CPU limit (cgroup v1 or v2), rounded up; at
// least 1. std::thread::hardware_concurrency() returns all CPUs of the node, which would oversubscribe a pod with a
// limit.
int usable_cpus();

// Parses cgroup v2's cpu.max: "150000 100000" is 2. Returns 0 if there is no limit.
int cpus_from_cpu_max(const std::string& text);

// Limits the CPU time of a thread to a share of the time that passes, with a burst. It reads no clock. Not thread-safe.
class CpuBudget {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // A thread that was idle may use `share` of this period without a pause.
  static constexpr std::chrono::seconds kBurst{10};
  // Limits of a pause. After short pauses, the thread would have to be scheduled on a busy core for each piece of work;
  // many pieces of work after one longer pause end sooner.
  static constexpr std::chrono::milliseconds kShortestPause{10};
  static constexpr std::chrono::milliseconds kLongestPause{50};

  // `share` is the share of one core, such as 0.04; 0 disables the limit.
  explicit CpuBudget(double share)
      : share_(share), burst_(share * static_cast<double>(Nanoseconds(kBurst).count())), balance_(burst_) {}

  // Returns how long the thread must wait before it calls this again; 0 if it may start further work. `used` is the
  // total CPU time of the thread.
  Nanoseconds pause(SteadyTime now, Nanoseconds used);

 private:
  struct Reading {
    SteadyTime now;
    Nanoseconds used;
  };
  const double share_;
  const double burst_;  // nanoseconds of CPU time
  double balance_;      // the same; negative after too much work
  std::optional<Reading> last_;
};

}  // namespace oarlock
