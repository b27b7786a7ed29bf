// "Running while nothing moves": when a job whose pods all run is Stalled, and when it is not any more.
#pragma once

#include <chrono>
#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// A running job is late then: its step has not moved for stallPolicy.timeoutSeconds. It follows from the status alone,
// so that every operator comes to the same. Absent: the job does not run, or its rank 0 never told its step.
std::optional<SystemTime> stall_time(const api::StallPolicy& policy, const api::Status& status);

// Moves `status`, which is refreshed, from Running to Stalled or back.
void judge_steps(const Observed& observed, const Membership& members, api::Status& status);

// When judge_steps may come to another result without any change of what is seen. Absent: never.
std::optional<std::chrono::seconds> next_judgement(const Observed& observed, const api::Status& status);

}  // namespace oarlock::control
