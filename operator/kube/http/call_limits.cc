#include "operator/kube/http/call_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace oarlock::kube {

using Clock = std::chrono::steady_clock;
using Kind = TransportError::Kind;

CallLimits::CallLimits(StreamLimits limits, std::stop_token cancel)
    : limits_(limits),
      cancel_(std::move(cancel)),
      end_(Clock::now() + limits.total),
      idle_end_(Clock::now() + limits.idle) {}

TransportResult<void> CallLimits::check() const {
  if (cancel_.stop_requested()) return failed(Kind::kCancelled, "cancelled");
  const Time now = Clock::now();
  if (now >= end_) return failed(Kind::kDeadline, fmt::format("no whole response within {} ms", limits_.total.count()));
  if (now >= idle_end_) return failed(Kind::kIdle, fmt::format("nothing was received for {} ms", limits_.idle.count()));
  return {};
}

CallLimits::Time CallLimits::next() const { return std::min(end_, idle_end_); }

void CallLimits::progress() { idle_end_ = Clock::now() + limits_.idle; }

}  // namespace oarlock::kube
