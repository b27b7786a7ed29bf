// The environment of a rank of the trainer: its position (ddp/rank_environment.h), and what the operator and the
// launcher pass to it (common/contract.h).
#pragma once

#include <optional>
#include <string>

#include "common/error.h"
#include "ddp/rank_environment.h"

namespace oarlock {

struct JobEnvironment : RankEnvironment {
  std::string job;  // name; empty outside a TrainingJob
  std::string job_namespace;
  std::optional<std::string> config;  // file
  std::optional<std::string> checkpoint_dir;
  std::optional<int> metrics_port;             // of local rank 0; 0 for none
  std::optional<std::string> termination_log;  // file

  bool operator==(const JobEnvironment&) const = default;
};

// Reads the position of the rank as read_rank_environment() does, and the variables of Oarlock. Empty values count as
// not set. Fails with kConfig if a variable is missing, not a number, out of range or contradicts another one; the
// message is one line that names the variable, its value and the remedy. Pure.
Result<JobEnvironment> read_job_environment(const EnvironmentLookup& lookup);

}  // namespace oarlock
