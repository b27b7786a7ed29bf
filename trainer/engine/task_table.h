// The tasks of a program.
#pragma once

#include <map>
#include <string>

#include "trainer/engine/task.h"

namespace oarlock {

// By name.
using TaskTable = std::map<std::string, TaskFactory>;

}  // namespace oarlock
