// The decision of the operator. reconcile() is deterministic and total: it returns a Plan for every Observed, and equal
// plans for equal arguments. It uses no clock, thread, random number, log or I/O. docs/operator-states.md is its state
// table.
#pragma once

#include <optional>
#include <span>

#include "operator/core/membership.h"

namespace oarlock::control {

// Returns the plan for a job. The first of policies() that returns a plan decides.
Plan reconcile(const Observed& observed);

// A policy decides about one situation: it returns a plan if the job is in that situation, and otherwise nullopt, which
// leaves the decision to the next policy.
using Policy = std::optional<Plan> (*)(const Observed&, const Membership&);

// Returns all policies in their order.
std::span<const Policy> policies();

// Reconciles with another list of policies. Tests use it to verify that they detect a missing or broken policy.
Plan reconcile(const Observed& observed, std::span<const Policy> policies);

// ---- Policies of active jobs; lifetime.h declares the others -------------------------------------------------------

std::optional<Plan> wait_for_fresh_cache(const Observed& observed, const Membership& members);
std::optional<Plan> complete(const Observed& observed, const Membership& members);
std::optional<Plan> recover(const Observed& observed, const Membership& members);
std::optional<Plan> handle_name_conflict(const Observed& observed, const Membership& members);
std::optional<Plan> reject_invalid_spec(const Observed& observed, const Membership& members);
std::optional<Plan> fail_invalid_template(const Observed& observed, const Membership& members);
std::optional<Plan> converge(const Observed& observed, const Membership& members);

// Reason of the condition of a job with an invalid spec. It remains until the spec changes.
inline constexpr char kInvalidSpec[] = "InvalidSpec";

// Reason of the condition Failed of a job whose pods the API server rejects.
inline constexpr char kInvalidTemplate[] = "InvalidTemplate";

}  // namespace oarlock::control
