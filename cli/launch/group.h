// Runs a group of processes to completion: the I/O for Supervisor.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/process.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::launch {

struct Member {
  Command command;
  std::string name;    // for messages, such as "rank 3"
  std::string prefix;  // "[RANK 3] ", before each line; used with Stdio::kPipes only
};

struct GroupOptions {
  Supervisor::Duration grace;
  Stdio stdio = Stdio::kPipes;
};

// Starts all members, and waits until all their processes have ended and all their output is written. If a member
// cannot be started, stops the others and fails. Reaps all children of this process in the meantime, including
// reparented ones.
Result<GroupResult> run_group(const std::vector<Member>& members, const GroupOptions& options,
                              const SignalSource& signals, const Clock& clock, Console& console);

}  // namespace oarlock::launch
