// The command line of a trainer program: oarlock-trainer, or a program with other tasks.
#pragma once

#include "trainer/engine/task.h"

namespace oarlock {

// Parses the arguments, trains one rank, and returns the exit code of the process (common/error.h). Ends the process
// with _Exit() after a failure.
int trainer_main(int argc, char** argv, const TaskTable& tasks);

}  // namespace oarlock
