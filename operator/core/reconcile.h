// The decision. Deterministic and total: the same Observed gives the same Plan, whatever it holds; no clock, thread,
// random number, log or I/O. docs/operator-states.md is its state table.
#pragma once

#include "operator/core/model.h"

namespace oarlock::control {

Plan reconcile(const Observed& observed);

}  // namespace oarlock::control
