// A stop that all ranks obey at the same step, although the signal reaches them at different moments, or only one.
#pragma once

#include <cstdint>

#include "trainer/distributed/process_group.h"
#include "trainer/process/signals.h"

namespace oarlock {

class StopAgreement {
 public:
  StopAgreement(const StopFlag& stop, const RankGroup& group) : stop_(stop), group_(group) {}

  // After every step, on all ranks. `wish`: this rank has another reason to stop than a signal. The ranks talk after
  // the first step and then about twice a second: the interval in steps comes from the slowest rank's step time, which
  // they exchange along with the flag.
  bool reached(int64_t step, double step_seconds, bool wish);

 private:
  const StopFlag& stop_;
  const RankGroup& group_;
  int64_t next_step_ = 0;
};

}  // namespace oarlock
