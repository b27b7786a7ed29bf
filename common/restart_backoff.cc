#include "common/restart_backoff.h"

#include <algorithm>

namespace oarlock {

std::chrono::milliseconds restart_backoff(std::chrono::milliseconds first, int64_t short_attempts) {
  if (short_attempts < 2) return std::chrono::milliseconds(0);
  const auto longest = std::max<std::chrono::milliseconds>(first, kMaxBackoff);
  // Twenty doublings of a millisecond exceed the maximum.
  const int64_t doublings = std::min<int64_t>(short_attempts - 2, 20);
  return std::min(first * (int64_t{1} << doublings), longest);
}

}  // namespace oarlock
