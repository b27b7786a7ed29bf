#include "operator/core/backoff.h"

#include <algorithm>

namespace oarlock::control {
namespace {

using std::chrono::seconds;

bool was_quick(const api::AttemptRecord& record) {
  return !record.start_time || record.end_time - *record.start_time < kSteadyRun;
}

}  // namespace

seconds restart_delay(const api::FailurePolicy& policy, const api::Status& status) {
  const auto& attempts = status.attempts;
  const auto steady =
      std::find_if(attempts.rbegin(), attempts.rend(), [](const auto& record) { return !was_quick(record); });
  const auto quick = std::distance(attempts.rbegin(), steady);
  if (quick < 2) return seconds(0);
  const seconds first(policy.backoff_seconds);
  // Twelve doublings exceed the longest delay; a status with more records is not ours.
  const int64_t factor = int64_t{1} << std::min<std::ptrdiff_t>(quick - 2, 12);
  return std::min(first * factor, std::max<seconds>(first, kLongestBackoff));
}

std::optional<SystemTime> restart_time(const api::FailurePolicy& policy, const api::Status& status) {
  if (status.phase != api::Phase::kRestarting || status.attempts.empty()) return std::nullopt;
  const seconds delay = restart_delay(policy, status);
  if (delay.count() <= 0) return std::nullopt;
  return status.attempts.back().end_time + delay;
}

}  // namespace oarlock::control
