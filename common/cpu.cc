#include "common/cpu.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "common/cgroup.h"

namespace oarlock {
namespace {

int bound_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(CPU_COUNT(&set), 1) : 1;
}

}  // namespace

int cpus_from_cpu_max(const std::string& text) {
  std::istringstream stream(text);
  double quota = 0;
  double period = 0;
  if (!(stream >> quota >> period) || quota <= 0 || period <= 0) return 0;  // "max 100000", and -1 of version 1
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

int usable_cpus() {
  const int limit = cgroup_cpus();
  return limit > 0 ? std::min(limit, bound_cpus()) : bound_cpus();
}

}  // namespace oarlock
