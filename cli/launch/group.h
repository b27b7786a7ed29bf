// Runs a group of processes to completion: performs the I/O of a Supervisor, which decides.
#pragma once

#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/member_output.h"
#include "cli/launch/process.h"
#include "cli/launch/recovery.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::launch {

class Progress;

struct GroupOptions {
  Supervisor::Duration grace;
  Stdio stdio = Stdio::kPipes;
  int attempt = 0;  // in the names of log directories, without a recovery
  // If set, it decides when members start, and failed members are restarted. Not owned.
  Recovery* recovery = nullptr;
  // If set: what the members report, and the server of it. Not owned.
  Progress* progress = nullptr;
  // Holds a standby process for the next member that is started again, if its program supports that. With
  // Stdio::kPipes and a recovery only.
  bool has_standby = false;
};

// Returns the member's variables that change with each start: torchrun's TORCHELASTIC_RESTART_COUNT.
Environment restart_environment(int64_t restarts);

// Starts all members, and waits until all their processes have ended and all their output is written. If a member
// cannot be started, stops the others and fails. Reaps all children of this process in the meantime, including
// reparented ones.
Result<GroupResult> run_group(const std::vector<Member>& members, const GroupOptions& options,
                              const SignalSource& signals, const Clock& clock, Console& console);

}  // namespace oarlock::launch
