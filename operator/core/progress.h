// What the processes of a job report: progress, recoveries, and restarts in their pods. A pod can report any numbers;
// they change its own job only.
#pragma once

#include <cstdint>
#include <optional>

#include "operator/core/membership.h"
#include "operator/core/pod_failure.h"

namespace oarlock::control {

// Removes the fraction of a second, which the API server does not store.
SystemTime whole_seconds(SystemTime time);

// Raises a highest number to a reported one; a negative one is none.
void raise_to(std::optional<int64_t>& highest, int64_t reported);

// Returns whether `observed.progress` is of the attempt in the status, and not of an earlier one.
bool has_progress(const Observed& observed, const api::Status& status);

// Updates the progress from the status that rank 0 of this attempt reported. lastStepTime is read from the operator's
// clock, because the clock of a rank may be wrong. It is absent while a process starts: that time counts as no stall.
// The restarts in pods are refreshed before it: the start of a process is read from them.
void refresh_progress(const Observed& observed, api::Status& status);

// Adds the recoveries that rank 0 of this attempt has reported since the last time. Its counts are handed over to the
// process that replaces it. They begin again if the group started from a checkpoint; then all of them are new.
void refresh_recoveries(const Observed& observed, api::Status& status);

// As refresh_recoveries(), for restarts of all processes. A launcher that was replaced continues the count, but not the
// duration.
void refresh_in_pod_restarts(const Observed& observed, api::Status& status);

// Sets secondsLost of the records whose loss is over: a later attempt is beyond their step, or has started. `before` is
// the phase before the status was refreshed.
void refresh_seconds_lost(const Observed& observed, api::Phase before, api::Status& status);

// ---- End of an attempt ---------------------------------------------------------------------------------------------

// Returns the termination message of node rank 0, if it has ended and left one.
std::optional<TerminationMessage> final_message(const Membership& members);

// Updates the progress from the termination message of rank 0, because the last poll may precede the end.
// A message without a step, as the launcher writes it for a rank that has left none, keeps the step.
void apply_termination_message(const Membership& members, api::Status& status, SystemTime now);

// Returns how far the job has come, by the reports of rank 0 and the termination messages of all pods of the attempt.
api::HighestProgress find_highest_progress(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
