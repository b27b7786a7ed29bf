// Waiting for a state of a TrainingJob, for `oarlock wait` and the option --wait of other commands.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "cli/cluster/cluster.h"
#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::cli {

enum class WaitGoal { kRunning, kComplete, kFailed, kSuspended, kDeleted };

std::optional<WaitGoal> parse_wait_goal(std::string_view name);
std::string_view to_string(WaitGoal goal);

enum class WaitOutcome { kContinue, kReached, kMissed };

// Decides whether the state of the job is the goal, or one from which the goal cannot be reached any more. A job that
// completed has also run. Pure.
WaitOutcome judge_wait(WaitGoal goal, const api::Status& status);

// Polls the job until the goal is reached: exit code 0. A suspended job has no running pods, as far as the user may
// read them; a deleted one may have a successor of its name. Returns 1 if the job has ended in another way, with a
// message on standard error, and fails with kTempFail after the time-out. Errors of the connection do not end the wait.
Result<int> wait_for_goal(const Cluster& cluster, const std::string& name, WaitGoal goal,
                          std::optional<std::chrono::milliseconds> timeout, std::string_view program);

}  // namespace oarlock::cli
