// Policies about a job as a whole: objects that cannot be read completely, jobs that other controllers manage,
// deletion, expiry, cleanup, suspension, resume and deadline. reconcile.h explains policies; docs/operator-states.md
// describes each of them.
#pragma once

#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// Blocks a job whose object is unreadable, because it violates the schema, and reports it with the condition
// Unreadable. The decoded spec and status of such a job are incomplete, so no other action is derived from them.
std::optional<Plan> report_unreadable(const Observed& observed, const Membership& members);

// Sets the condition UnknownFields of a job with fields or values that this version ignores, and removes outdated
// conditions of both types.
std::optional<Plan> report_unknown_fields(const Observed& observed, const Membership& members);

// Returns when an active job fails because of activeDeadlineSeconds. The time counts from the first start, or from the
// last resume, as for a Job, or from the last admission by its queue. Absent if no deadline is set, or the job is not
// active or waits for its queue.
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
