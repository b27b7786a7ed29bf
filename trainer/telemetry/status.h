// The document behind /statusz: written by the training thread, read by the server's.
#pragma once

#include <mutex>
#include <utility>

#include "common/clock.h"
#include "common/contract.h"

namespace oarlock {

// Thread-safe.
class StatusBoard {
 public:
  // The clock must outlive the board.
  StatusBoard(RankStatus initial, const Clock& clock) : status_(std::move(initial)), clock_(clock) {
    status_.updated_at = to_rfc3339(clock_.now());
  }

  // change(RankStatus&) under the lock; the time of the update is set here.
  template <typename Change>
  void update(Change&& change) {
    const SystemTime now = clock_.now();
    const std::lock_guard lock(mutex_);
    change(status_);
    updated_ = now;
  }

  RankStatus get() const {
    const std::lock_guard lock(mutex_);
    RankStatus copy = status_;
    if (updated_ != SystemTime{}) copy.updated_at = to_rfc3339(updated_);  // formatted when read, not at every step
    return copy;
  }

 private:
  mutable std::mutex mutex_;
  RankStatus status_;
  SystemTime updated_;  // the epoch: never
  const Clock& clock_;
};

}  // namespace oarlock
