#include "common/http/cpu_budget.h"

#include <algorithm>

namespace oarlock {

CpuBudget::Nanoseconds CpuBudget::pause(SteadyTime now, Nanoseconds used) {
  if (share_ <= 0) return Nanoseconds(0);
  const Reading reading{.now = now, .used = used};
  const Reading last = last_.value_or(reading);
  last_ = reading;
  const auto nanoseconds = [](auto time) { return static_cast<double>(Nanoseconds(time).count()); };
  balance_ += share_ * nanoseconds(now - last.now) - nanoseconds(used - last.used);
  balance_ = std::min(balance_, burst_);
  if (balance_ >= 0) return Nanoseconds(0);
  const double pause = std::clamp(-balance_ / share_, nanoseconds(kShortestPause), nanoseconds(kLongestPause));
  return Nanoseconds(static_cast<int64_t>(pause));
}

}  // namespace oarlock
