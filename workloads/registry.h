// The tasks of oarlock-trainer. The list OARLOCK_WORKLOADS of CMakeLists.txt names them; CMake writes registry.cc from
// it.
#pragma once

#include "trainer/engine/task.h"

namespace oarlock {

// Returns the factories by the value of the key "task" that selects them.
TaskTable builtin_tasks();

}  // namespace oarlock
