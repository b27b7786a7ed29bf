// Runs a TrainingJob on this machine: attempts, group restarts by the rules of the operator, and the final report.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "api/types.h"
#include "cli/launch/console.h"
#include "cli/launch/process.h"
#include "cli/run/config_maps.h"
#include "cli/run/run_directory.h"
#include "common/clock.h"
#include "common/error.h"
#include "operator/core/failure.h"

namespace oarlock::run {

struct LocalRunOptions {
  std::optional<int> master_port;
  std::optional<double> grace;        // seconds between SIGTERM and SIGKILL; empty: that of the pod template
  std::string log_format = "auto";    // of oarlock-trainer: text, json, or auto, which is text on a terminal
  std::vector<std::string> settings;  // key=value arguments for oarlock-trainer
  RunCommand command;                 // the command that continues this run
  bool has_prefixes = true;           // before the lines of the ranks
  std::string log_directory;          // also receives the output of the ranks; empty: none
  std::vector<LocalVolume> volumes;   // already written
};

// Runs the job until it completes, fails permanently, or is interrupted by a signal, and returns its exit code.
// `config` is the file with the configuration of the trainer. REQUIRES: api::validate(job) is empty.
Result<int> run_locally(api::TrainingJob job, const LocalRunOptions& options, RunDirectory directory,
                        std::string config, const launch::SignalSource& signals, const Clock& clock,
                        launch::Console& console);

// Returns the delay before the next attempt: that of the operator, given the duration of each attempt that has failed.
std::chrono::seconds delay_after(const api::TrainingJob& job, const std::vector<SteadyTime::duration>& attempts);

// Applies the operator's failure policy to the exit of a node. `restarts` are those so far, and `message` is the
// termination message, from which the progress of the attempt is read.
control::GroupFailure decide_after_exit(const api::TrainingJob& job, const api::Status& status, int node, int exit_code,
                                        const std::string& message);

}  // namespace oarlock::run
