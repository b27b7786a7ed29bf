// Waiting for a state of a TrainingJob, for `oarlock wait` and the option --wait of other commands.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "api/types.h"
#include "cli/cluster/cluster.h"
#include "common/error.h"

namespace oarlock::cli {

enum class WaitGoal { kRunning, kComplete, kFailed, kSuspended, kDeleted };

std::optional<WaitGoal> parse_wait_goal(std::string_view name);
std::string_view to_string(WaitGoal goal);

enum class WaitOutcome { kContinue, kReached, kMissed };

// Returns whether the job has reached the goal, can no longer reach it, or may still reach it. A completed job has also
// reached kRunning. Pure.
WaitOutcome judge_wait(WaitGoal goal, const api::Status& status);

// Polls the job until it reaches the goal, and returns the exit code of the command: 0, or 1 with a message on standard
// error if the job can no longer reach the goal. kSuspended also requires that all pods have ended, if the user may
// read pods. kDeleted is also reached if another job of this name exists. Fails with kTempFail after `timeout` (none:
// waits without a limit), and, unless the goal is kDeleted, with kNoInput if the job does not exist or is deleted
// meanwhile. Once the job has been read, temporary errors of the connection do not end the wait.
Result<int> wait_for_goal(const Cluster& cluster, const std::string& name, WaitGoal goal,
                          std::optional<std::chrono::milliseconds> timeout, std::string_view program);

}  // namespace oarlock::cli
