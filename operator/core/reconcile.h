// The decision. Deterministic and total: the same Observed gives the same Plan, whatever it holds; no clock, thread,
// random number, log or I/O. docs/operator-states.md is its state table.
#pragma once

#include "operator/core/policy.h"

namespace oarlock::control {

Plan reconcile(const Observed& observed);

// With another list of policies; tests use it to see that they notice a broken one.
Plan reconcile(const Observed& observed, std::span<const Policy> policies);

}  // namespace oarlock::control
