// What must hold at every write of the operator, judged by the true state of the world and not by what it saw.
#pragma once

#include <string>

#include "tests/support/model/worlds.h"

namespace oarlock::test {

// Empty: all is well; else what is not.
std::string broken_by(const control::Action& action, const World& world, const SimCluster& before,
                      const SimCluster& after);

}  // namespace oarlock::test
