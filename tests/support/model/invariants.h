// What must hold at every write of the operator, judged by the true state of the world and not by what it saw.
#pragma once

#include <string>

#include "tests/support/model/worlds.h"

namespace oarlock::test {

// Empty: all is well; else what is not.
std::string broken_by(const control::Action& action, const World& world, const SimCluster& before,
                      const SimCluster& after);

// The same of a world at rest: whether a job that runs is Stalled exactly when its rank 0 stands still.
std::string untrue_of(const World& world, const SimCluster& cluster);

}  // namespace oarlock::test
