// Invariants of TrainingProfiles: a change reaches no attempt that has begun, and each resumed job.
#pragma once

#include <string>

#include "operator/core/model.h"
#include "tests/support/sim_cluster.h"

namespace oarlock::test {

// Checks that an action changes the recorded profile only of a job that awaits its start, and that every pod of the
// attempt was created with the recorded profile. Returns the violated invariant, or an empty string.
std::string check_profiles(const SimCluster& before, const SimCluster& after);

// Checks that a plan which was made from the current state of the cluster resumes the job with the present profile.
// Returns the violated invariant, or an empty string.
std::string check_resumed_profile(const control::Plan& plan, const SimCluster& cluster);

}  // namespace oarlock::test
