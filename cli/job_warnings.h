// Warnings about TrainingJobs that are valid, and that probably do not do what their user expects.
#pragma once

#include <string>
#include <vector>

#include "api/types.h"

namespace oarlock::cli {

// Returns one line for each: several ranks in each pod whose command is a Python script without a launcher, and
// checkpoints of oarlock-trainer in a directory that is on no volume. REQUIRES: api::validate(job) is empty.
std::vector<std::string> job_warnings(const api::TrainingJob& job);

}  // namespace oarlock::cli
