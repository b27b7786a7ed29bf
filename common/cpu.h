// The number of CPUs that this process may use.
#pragma once

#include <string>

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

}  // namespace oarlock
