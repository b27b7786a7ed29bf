// Invariants of quota and of PodGroups, checked against the true state of the cluster. Each function returns the
// violated invariant, or an empty string.
#pragma once

#include <string>

#include "tests/support/sim_cluster.h"

namespace oarlock::test {

// A pod whose peers have no node yet belongs to the PodGroup of them all, which exists. `has_finished_ranks`: the
// status of the job has ranks that have finished, whose pods had nodes.
std::string check_gang(const control::CreatePod& create, const SimCluster& before, bool has_finished_ranks);

// An operator that observes the cluster as it is releases quota when no pod uses it any more.
std::string check_release(const control::Plan& plan, const SimCluster& cluster);

// A job that runs is admitted, and one that has ended, is suspended or was evicted holds no quota.
std::string check_quota(const SimCluster& cluster);

// A PodGroup exists while a pod that has not ended belongs to it, and no longer. All pods of the first placement of an
// attempt belong to one.
std::string check_pod_groups(const SimCluster& cluster);

}  // namespace oarlock::test
