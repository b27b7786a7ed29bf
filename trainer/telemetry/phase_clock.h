// Breakdown of a rank's time by phase. A rank is in exactly one phase at any time, so that the phases add up to the
// uptime.
#pragma once

#include <array>
#include <mutex>
#include <string_view>

#include "common/clock.h"

namespace oarlock {

enum class Phase {
  kStartup,
  kRendezvous,
  kRestore,
  kDataWait,
  kForward,
  kBackward,
  kComm,  // this rank's gradients are complete, those of the other ranks are not
  kOptimizer,
  kEval,
  kCheckpoint,
  kOther
};

inline constexpr std::array<std::string_view, 11> kPhaseNames = {"startup", "rendezvous", "restore", "data_wait",
                                                                 "forward", "backward",   "comm",    "optimizer",
                                                                 "eval",    "checkpoint", "other"};

// Thread-safe.
class PhaseClock {
 public:
  // Starts in Phase::kStartup. The clock must outlive this object.
  explicit PhaseClock(const Clock& clock) : clock_(clock), since_(clock.steady()) {}

  void enter(Phase phase);

  // The current phase.
  Phase phase() const;

  // Seconds spent per phase, including the current one; indexed as kPhaseNames.
  std::array<double, kPhaseNames.size()> seconds() const;

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kStartup;
  SteadyTime since_;
  std::array<double, kPhaseNames.size()> seconds_{};
};

}  // namespace oarlock
