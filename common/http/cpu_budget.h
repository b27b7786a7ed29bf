// Limits the CPU time of a thread to a share of the time that passes, with a burst. It reads no clock. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>

#include "common/clock.h"

namespace oarlock {

class CpuBudget {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // CPU time that an idle thread may use without a pause; the shortest and the longest pause.
  static constexpr std::chrono::milliseconds kBurst{100};
  static constexpr std::chrono::milliseconds kShortestPause{1};
  static constexpr std::chrono::milliseconds kLongestPause{50};

  // `share` is the share of one core, such as 0.04; 0 disables the limit.
  explicit CpuBudget(double share) : share_(share) {}

  // Returns how long the thread should wait, and then call again, before it starts further work; 0 if it may start it.
  // `used` is the CPU time that it has used in total.
  Nanoseconds pause(SteadyTime now, Nanoseconds used);

 private:
  struct Reading {
    SteadyTime now;
    Nanoseconds used;
  };
  const double share_;
  std::optional<Reading> last_;
  double balance_ = Nanoseconds(kBurst).count();  // nanoseconds of CPU time; negative after too much work
};

}  // namespace oarlock
