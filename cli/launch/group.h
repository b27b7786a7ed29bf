// Runs a group of processes to its end: the I/O around Supervisor.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/process.h"
#include "cli/launch/signals.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::launch {

struct Member {
  Command command;
  std::string name;    // "rank 3", in messages
  std::string prefix;  // "[RANK 3] ", before each line; used with Stdio::kPipes only
};

struct GroupOptions {
  Supervisor::Duration grace;
  Stdio stdio = Stdio::kPipes;
};

// Starts all members and waits until nothing of them is left: not a process, not a byte of output. Fails when one
// cannot be started, with the others stopped. Everything that this process gets as a child meanwhile is reaped.
Result<Verdict> run_group(const std::vector<Member>& members, const GroupOptions& options, const SignalSource& signals,
                          const Clock& clock, Console& console);

}  // namespace oarlock::launch
