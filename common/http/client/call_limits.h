// Deadline, idle limit and cancellation of one call of a Transport.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <utility>

#include "common/http/client/transport.h"

namespace oarlock::kube {

// Not thread-safe, except that other threads may request a stop through the stop token.
class CallLimits {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // Starts both limits now.
  CallLimits(StreamLimits limits, std::stop_token cancel)
      : limits_(limits),
        cancel_(std::move(cancel)),
        end_(Clock::now() + limits.total),
        idle_end_(Clock::now() + limits.idle) {}

  // Fails with kCancelled, kDeadline or kIdle if one of the limits has been reached.
  TransportResult<void> check() const {
    if (cancel_.stop_requested()) return failed(TransportErrorKind::kCancelled, "cancelled");
    const Time now = Clock::now();
    if (now >= end_) {
      return failed(TransportErrorKind::kDeadline,
                    fmt::format("no complete response within {} ms", limits_.total.count()));
    }
    if (now >= idle_end_) {
      return failed(TransportErrorKind::kIdle, fmt::format("no data received for {} ms", limits_.idle.count()));
    }
    return {};
  }

  // Time at which the next limit will be reached.
  Time next() const { return std::min(end_, idle_end_); }
  // Time at which the call must have ended.
  Time end() const { return end_; }
  const std::stop_token& cancel() const { return cancel_; }

  // Restarts the idle limit, because data was transferred.
  void restart_idle() { idle_end_ = Clock::now() + limits_.idle; }

 private:
  const StreamLimits limits_;
  const std::stop_token cancel_;
  const Time end_;
  Time idle_end_;
};

}  // namespace oarlock::kube
