#include "trainer/telemetry/phase_clock.h"

namespace oarlock {

void PhaseClock::enter(Phase phase) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.steady();
  seconds_[static_cast<size_t>(phase_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  phase_ = phase;
}

Phase PhaseClock::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

std::array<double, kPhaseNames.size()> PhaseClock::seconds() const {
  const std::lock_guard lock(mutex_);
  std::array<double, kPhaseNames.size()> out = seconds_;
  out[static_cast<size_t>(phase_)] += std::chrono::duration<double>(clock_.steady() - since_).count();
  return out;
}

}  // namespace oarlock
