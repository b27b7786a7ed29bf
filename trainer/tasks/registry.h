// The tasks that come with oarlock-trainer. A task of one's own is one line in a table like this one.
#pragma once

#include "trainer/engine/task_table.h"

namespace oarlock {

TaskTable builtin_tasks();

}  // namespace oarlock
