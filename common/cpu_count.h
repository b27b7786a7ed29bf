// How many cores this process may use.
#pragma once

#include <string>

namespace oarlock {

// The least of the cores that the process is bound to and its container's CPU limit, rounded up; at least 1. A pod sees
// all cores of its node and may use two of them: threads by the number of cores would only take turns.
int usable_cpus();

// From the text of cgroup v2's cpu.max ("150000 100000" -> 2); 0: no limit. Pure.
int cpus_from_cpu_max(const std::string& text);

}  // namespace oarlock
