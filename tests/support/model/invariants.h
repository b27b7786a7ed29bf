// Invariants of every write of the operator. They are checked against the true state of the cluster, not against the
// observed one.
#pragma once

#include <string>

#include "tests/support/model/worlds.h"

namespace oarlock::test {

// Returns the violated invariant, or an empty string.
std::string check_action(const control::Action& action, const World& world, const SimCluster& before,
                         const SimCluster& after);

// Checks a plan that was made from the current state of the cluster, when rank 0 had just been polled: a group whose
// launchers continue with fewer nodes must not restart, also if one of them ended because it lost its connection, and
// one whose launchers do not must not wait forever. Returns the violated invariant, or an empty string.
std::string check_plan(const control::Plan& plan, const SimCluster& cluster);

// Returns whether the action records the replacement of a pod whose launcher lost its connection.
bool replaces_disconnected_pod(const control::Action& action, const SimCluster& before);

// Checks a state in which the operator has no more actions: for example, a running job must be Stalled exactly if the
// step of rank 0 does not change. Returns the violated invariant, or an empty string.
std::string check_at_rest(const World& world, const SimCluster& cluster);

}  // namespace oarlock::test
