// Samples and steps per second over about the last ten seconds. Pure.
#pragma once

#include <cstdint>

namespace oarlock {

class Throughput {
 public:
  void add_step(int64_t samples, double seconds);

  double samples_per_second() const { return seconds_ > 0 ? samples_ / seconds_ : 0; }
  double seconds_per_step() const { return steps_ > 0 ? seconds_ / steps_ : 0; }

 private:
  // Sums that decay by e in ten seconds, so their ratios need no correction for the start.
  double samples_ = 0;
  double steps_ = 0;
  double seconds_ = 0;
};

}  // namespace oarlock
