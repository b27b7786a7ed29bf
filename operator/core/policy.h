// The policies: each looks at the job and gives the plan, or leaves it to the next in the list. docs/operator-states.md
// has a row for each.
#pragma once

#include <optional>
#include <span>

#include "operator/core/membership.h"

namespace oarlock::control {

// Reason of the condition of a job whose spec cannot work. It stays until the spec changes.
inline constexpr char kInvalidSpec[] = "InvalidSpec";

using Policy = std::optional<Plan> (*)(const Observed&, const Membership&);

// lifetime.cc
std::optional<Plan> leave_to_its_manager(const Observed& observed, const Membership& members);
std::optional<Plan> leave_the_deleted(const Observed& observed, const Membership& members);
std::optional<Plan> expire(const Observed& observed, const Membership& members);
std::optional<Plan> tidy_the_ended(const Observed& observed, const Membership& members);
std::optional<Plan> enforce_deadline(const Observed& observed, const Membership& members);
// report.cc
std::optional<Plan> report_unreadable(const Observed& observed, const Membership& members);
std::optional<Plan> report_unknown_fields(const Observed& observed, const Membership& members);
// success_policy.cc
std::optional<Plan> complete(const Observed& observed, const Membership& members);
// suspend.cc
std::optional<Plan> suspend(const Observed& observed, const Membership& members);
std::optional<Plan> resume(const Observed& observed, const Membership& members);
// recover.cc
std::optional<Plan> recover(const Observed& observed, const Membership& members);
// converge.cc
std::optional<Plan> wait_for_fresh_cache(const Observed& observed, const Membership& members);
std::optional<Plan> handle_name_conflict(const Observed& observed, const Membership& members);
std::optional<Plan> refuse_nonsense(const Observed& observed, const Membership& members);
std::optional<Plan> converge(const Observed& observed, const Membership& members);

// All of them in their order.
std::span<const Policy> policies();

}  // namespace oarlock::control
