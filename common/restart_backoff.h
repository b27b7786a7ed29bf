// The delay of a restart: of a job's pods by the operator, and of its ranks in place by the launcher.
#pragma once

#include <chrono>
#include <cstdint>

namespace oarlock {

// An attempt that ran for at least this long resets the backoff.
inline constexpr std::chrono::minutes kBackoffResetAfter{10};
inline constexpr std::chrono::minutes kMaxBackoff{5};

// Returns the delay before the next attempt: zero after the first of several consecutive short attempts, `first` after
// the second, and twice the previous delay after each further one. The maximum is kMaxBackoff, or `first` if that is
// longer.
std::chrono::milliseconds restart_backoff(std::chrono::milliseconds first, int64_t short_attempts);

}  // namespace oarlock
