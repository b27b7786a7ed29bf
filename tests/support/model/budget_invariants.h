// Invariants of the budget of restarts, checked against the true state of the cluster.
#pragma once

#include <string>

#include "tests/support/sim_cluster.h"

namespace oarlock::test {

// Checks a write of the status: a job that has made progress is not charged and does not fail for its restarts, within
// the total limit; one that has not fails after exactly the configured number. Returns the violated invariant, or an
// empty string.
std::string check_budget(const SimCluster& before, const api::Status& is);

}  // namespace oarlock::test
