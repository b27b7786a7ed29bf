// A clock that advances only when the test advances it.
#pragma once

#include <mutex>

#include "common/clock.h"

namespace oarlock::test {

class FakeClock final : public Clock {
 public:
  SystemTime now() const override {
    const std::lock_guard lock(mutex_);
    return SystemTime(std::chrono::seconds(1'700'000'000)) + std::chrono::duration_cast<SystemTime::duration>(passed_);
  }
  SteadyTime steady() const override {
    const std::lock_guard lock(mutex_);
    return SteadyTime(std::chrono::hours(1)) + std::chrono::duration_cast<SteadyTime::duration>(passed_);
  }
  void advance(std::chrono::nanoseconds duration) {
    const std::lock_guard lock(mutex_);
    passed_ += duration;
  }

 private:
  mutable std::mutex mutex_;
  std::chrono::nanoseconds passed_{0};
};

}  // namespace oarlock::test
