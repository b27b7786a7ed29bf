// Invariants of the nodes that a job avoids, checked against the true state of the cluster.
#pragma once

#include <string>

#include "tests/support/sim_cluster.h"

namespace oarlock::test {

// Each function returns the violated invariant, or an empty string.

// A pod is created only with the affinity that the status requires.
std::string check_avoidance(const control::CreatePod& create, const SimCluster& before);

// Checks a write of the status: only failures are counted and make an avoidance stronger.
std::string check_bad_nodes(const SimCluster& before, const api::Status& is, bool has_failed);

// Checks a state in which the operator has nothing to do: no pod waits for a node because of the nodes that it avoids.
std::string check_waiting_pods(const SimCluster& cluster);

}  // namespace oarlock::test
