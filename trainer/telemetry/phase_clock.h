// Where a rank's time goes: exactly one phase at any moment, so that the phases sum up to the uptime.
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
  kComm,  // own gradients are done, those of the other ranks are waited for
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

  // Of this moment.
  Phase phase() const;

  // Seconds by phase until now, the one under way included; indexed as kPhaseNames.
  std::array<double, kPhaseNames.size()> seconds() const;

 private:
  const Clock& clock_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kStartup;
  SteadyTime since_;
  std::array<double, kPhaseNames.size()> seconds_{};
};

}  // namespace oarlock
