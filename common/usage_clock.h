// Counts the seconds of a process by usage class, as RankStatus::usage_seconds reports them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "common/clock.h"
#include "common/usage_class.h"

namespace oarlock {

// Begins in the class kStarting. Not thread-safe.
class UsageClock {
 public:
  explicit UsageClock(SteadyTime begin) : since_(begin) {}

  // The present class, whose time before `now` is counted.
  void enter(UsageClass one, SteadyTime now) {
    add(present_, now);
    present_ = one;
  }

  // The processes are started again, and the steps since the last report are lost.
  void restart(SteadyTime now) {
    add(present_ == UsageClass::kProductive ? UsageClass::kRecovery : present_, now);
    present_ = UsageClass::kRecovery;
  }

  // A step was reported. The time since the last one is productive, or recomputed as far as the step is not above those
  // of earlier processes; in another class than kProductive, which ends now, it is that of the class.
  void record_step(int64_t step, SteadyTime now) {
    if (present_ == UsageClass::kProductive) {
      if (step == step_) return;
      add_steps(step, now);
    }
    enter(UsageClass::kProductive, now);
    step_ = step;
    highest_ = std::max(highest_.value_or(step), step);
  }

  // Returns the seconds until now; those of steps until the last report, because they may be a stall.
  UsageSeconds seconds(SteadyTime now) const {
    UsageSeconds out = seconds_;
    if (present_ != UsageClass::kProductive) out[present_] += std::chrono::duration<double>(now - since_).count();
    return out;
  }
  UsageClass present() const { return present_; }

 private:
  void add(UsageClass one, SteadyTime now) {
    seconds_[one] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
  }

  void add_steps(int64_t step, SteadyTime now) {
    const auto time = std::chrono::duration<double>(now - since_) * recomputed_share(step_, step, *highest_);
    add(UsageClass::kRecomputed, since_ + std::chrono::duration_cast<SteadyTime::duration>(time));
    add(UsageClass::kProductive, now);
  }

  UsageSeconds seconds_;
  UsageClass present_ = UsageClass::kStarting;
  SteadyTime since_;
  int64_t step_ = 0;
  std::optional<int64_t> highest_;  // of all processes
};

}  // namespace oarlock
