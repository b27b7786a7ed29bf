// Whether a failed group starts again: the operator's own judgement, asked for local processes.
#pragma once

#include <string>

#include "operator/core/failure_policy.h"

namespace oarlock::run {

// `restarts`: those that this run had so far. `node` is the one whose exit decided.
control::Failure judge_exit(const api::TrainingJob& job, int restarts, int node, int exit_code,
                            const std::string& message);

}  // namespace oarlock::run
