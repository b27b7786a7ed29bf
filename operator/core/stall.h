// Running jobs whose step does not change: the phase Stalled, and the rank that holds the others up.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns when a running job counts as stalled if its step does not change until then: stallPolicy.timeoutSeconds after
// the last change, or startTimeoutSeconds after a start if there was none since. It follows from the status alone, so
// that every operator process computes the same time. Absent if the job does not run, or if its rank 0 has not reported
// since its process started, nor a step before that.
std::optional<SystemTime> stall_time(const api::StallPolicy& policy, const api::Status& status);

// Returns when the processes of a running job last started: in new pods, or again in the same ones. Absent if the
// program has not reported a step before, as it may report none. It follows from the status alone, and does not change
// with the phases Running and Stalled.
std::optional<SystemTime> start_of_processes(const api::Status& status);

// Changes the phase of a refreshed status from Running to Stalled, or back.
void update_stalled_phase(const Observed& observed, const Membership& members, api::Status& status);

// Returns whether a job in phase Stalled may be restarted: rank 0 has answered since it was late, and its step has not
// changed, or is not reported yet after a start; or it does not answer, also after another timeoutSeconds, so that
// neither a new operator process nor a short disturbance of the network restarts groups that train. False while rank 0
// has no running pod.
bool is_still_stalled(const Observed& observed, const Membership& members);

// Returns the delay after which update_stalled_phase() can have another result without a change of the observed state;
// absent if it cannot.
std::optional<std::chrono::seconds> next_stall_check(const Observed& observed, const Membership& members,
                                                     const api::Status& status);

// Returns the time of the last step, or of the start, of a job that would become Stalled now, so that the reports of
// its nodes are of use. It costs little for a job that steps.
std::optional<SystemTime> stall_to_explain(const Observed& observed);

}  // namespace oarlock::control
