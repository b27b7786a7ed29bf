// When a job's time is over: activeDeadlineSeconds and ttlSecondsAfterFinished.
#pragma once

#include <optional>

#include "operator/core/model.h"

namespace oarlock::control {

// A job that is active then fails. The time runs from the first start, and anew from each resume, as a Job's does.
// Absent: none is set, or the job is not active.
std::optional<SystemTime> deadline(const Job& job);

// A job that has ended is deleted then. Absent: never.
std::optional<SystemTime> expiry(const Job& job);

}  // namespace oarlock::control
