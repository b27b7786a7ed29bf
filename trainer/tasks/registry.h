// The tasks of oarlock-trainer. A new task is added here, or to the table of another program (docs/adding-a-task.md).
#pragma once

#include "trainer/engine/task.h"

namespace oarlock {

TaskTable builtin_tasks();

}  // namespace oarlock
