// How long a group that fails again and again waits before it starts anew. All of it follows from the status, so an
// operator that is started anew waits neither longer nor shorter.
#pragma once

#include <chrono>
#include <optional>

#include "operator/core/model.h"

namespace oarlock::control {

// An attempt that lasted this long was no quick failure: what comes after it starts at once.
inline constexpr std::chrono::minutes kSteadyRun{10};
inline constexpr std::chrono::minutes kLongestBackoff{5};

// The wait after the attempts that status.attempts tells of: none after the first quick failure in a row,
// failurePolicy.backoffSeconds after the second, twice as long after each further one, at most kLongestBackoff or
// backoffSeconds, if that is longer.
std::chrono::seconds restart_delay(const api::FailurePolicy& policy, const api::Status& status);

// Before this the pods of the attempt are not created. Absent: they may be at once.
std::optional<SystemTime> restart_time(const api::FailurePolicy& policy, const api::Status& status);

}  // namespace oarlock::control
