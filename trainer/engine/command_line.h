// The command line of a trainer program: the same for oarlock-trainer and for a program with tasks of one's own.
#pragma once

#include "trainer/engine/task_table.h"

namespace oarlock {

// Parses the arguments, trains one rank, and gives the process's exit code (common/error.h). Leaves by _Exit() after a
// failure.
int trainer_main(int argc, char** argv, const TaskTable& tasks);

}  // namespace oarlock
