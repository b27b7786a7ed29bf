// The TrainingProfile of a job (api/profile.h): the status records a copy of it before the first pod, and again at a
// resume. The job is read with this copy merged into its spec, so a profile that changes or disappears affects no job
// that runs. All functions are pure.
#pragma once

#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns whether the status of the job may have to record a profile: it has not started, or is about to be resumed.
// Observed::profile is set for such jobs only.
bool may_apply_profile(const Job& job);

// A policy (reconcile.h). Records the profile of a job that may_apply_profile() and has no pods, or blocks the job if
// the profile does not exist, cannot be read, or does not result in a valid spec.
std::optional<Plan> apply_profile(const Observed& observed, const Membership& members);

// Blocks a job with a profile as apply_profile() does, because the API server has rejected its first pod, or the first
// one since the resume. REQUIRES: status.profile and Observed::template_error are set, and the job has no pods.
Plan reject_profile(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
