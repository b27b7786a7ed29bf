// Policies that report on the job how completely its object could be read: an object that violates the schema, or that
// a newer version of the operator wrote. reconcile.h explains policies.
#pragma once

#include <optional>

#include "operator/core/membership.h"

namespace oarlock::control {

// Blocks a job whose object is unreadable, and reports it with the condition Unreadable. The decoded spec and status of
// such a job are incomplete, so no other action is derived from them.
std::optional<Plan> report_unreadable(const Observed& observed, const Membership& members);

// Sets the condition UnknownFields of a job with fields or values that this version ignores, and removes outdated
// conditions of both types.
std::optional<Plan> report_unknown_fields(const Observed& observed, const Membership& members);

}  // namespace oarlock::control
