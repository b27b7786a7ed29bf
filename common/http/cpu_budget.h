// Limits the CPU time of a thread to a share of the time that passes, with a burst. It reads no clock. Not thread-safe.
#pragma once

#include <chrono>
#include <optional>

#include "common/clock.h"

namespace oarlock {

class CpuBudget {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  // An idle thread may use the CPU time of this long without a pause; the shortest and the longest pause.
  static constexpr std::chrono::seconds kBurst{10};
  static constexpr std::chrono::milliseconds kShortestPause{1};
  static constexpr std::chrono::milliseconds kLongestPause{50};

  // `share` is the share of one core, such as 0.04; 0 disables the limit.
  explicit CpuBudget(double share)
      : share_(share), burst_(share * static_cast<double>(Nanoseconds(kBurst).count())), balance_(burst_) {}

  // Returns how long the thread should wait, and then call again, before it starts further work; 0 if it may start it.
  // `used` is the CPU time that it has used in total.
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
