// Policies about the lifetime of a job: jobs that other controllers manage, deletion, expiry, cleanup, suspension,
// resume and deadline. reconcile.h explains policies; docs/operator-states.md describes each of them.
#pragma once

#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns when an active job fails because of activeDeadlineSeconds. The time counts from the first start, or from the
// last resume, as for a Job. Absent if no deadline is set or the job is not active.
std::optional<SystemTime> deadline(const Job& job);

// Returns when a terminal job is deleted because of ttlSecondsAfterFinished. Absent if it is never deleted.
std::optional<SystemTime> expiry(const Job& job);

std::optional<Plan> skip_managed_elsewhere(const Observed& observed, const Membership& members);
std::optional<Plan> skip_deleting(const Observed& observed, const Membership& members);
std::optional<Plan> expire(const Observed& observed, const Membership& members);
std::optional<Plan> clean_up_finished(const Observed& observed, const Membership& members);
std::optional<Plan> suspend(const Observed& observed, const Membership& members);
std::optional<Plan> resume(const Observed& observed, const Membership& members);
std::optional<Plan> enforce_deadline(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
