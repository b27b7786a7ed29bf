// The command line of a trainer program: oarlock-trainer, or a program with other tasks.
#pragma once

#include <functional>
#include <memory>

#include "common/error.h"
#include "trainer/engine/task.h"

namespace oarlock {

struct JobEnvironment;  // trainer/process/job_environment.h
class RegroupChannel;   // recovery/regroup.h

// Opens the channel over which the ranks regroup after the loss of a rank (docs/recovery.md). Returns null if the
// environment does not define one; the loss of a rank then ends the process.
using RegroupChannelFactory = std::function<Result<std::unique_ptr<RegroupChannel>>(const JobEnvironment& environment)>;

// Parses the arguments, trains one rank, and returns the exit code of the process (common/error.h). Ends the process
// with _Exit() after a failure. The channel is the one to the launcher, if it recovers ranks in place
// (docs/recovery.md).
int trainer_main(int argc, char** argv, const TaskTable& tasks);

// The same with another channel.
int trainer_main(int argc, char** argv, const TaskTable& tasks, const RegroupChannelFactory& open_channel);

}  // namespace oarlock
