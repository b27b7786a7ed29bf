// Deadline, idle limit and cancellation of one call of a Transport.
#pragma once

#include <chrono>
#include <stop_token>

#include "operator/kube/transport.h"

namespace oarlock::kube {

// Not thread-safe; only the stop token may be used by other threads.
class CallLimits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The time starts now.
  CallLimits(StreamLimits limits, std::stop_token cancel);

  // Fails with kCancelled, kDeadline or kIdle if one of the limits has been reached.
  TransportResult<void> check() const;
  // When the next limit will be reached.
  Time next() const;
  // The end of the total limit.
  Time end() const { return end_; }
  const std::stop_token& cancel() const { return cancel_; }

  // Bytes were transferred: the idle time starts again.
  void progress();

 private:
  const StreamLimits limits_;
  const std::stop_token cancel_;
  const Time end_;
  Time idle_end_;
};

}  // namespace oarlock::kube
