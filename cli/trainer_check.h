// Checks spec.trainer of a TrainingJob by running oarlock-trainer, which alone has the tasks and their options.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/process.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::cli {

class TrainerCheck {
 public:
  // `signals`, `clock` and `console` must outlive this object.
  TrainerCheck(const launch::SignalSource& signals, const Clock& clock, launch::Console& console);

  // Returns true if oarlock-trainer reads spec.trainer of this job: it is set, and the template does not set a command.
  static bool applies_to(const api::TrainingJob& job);

  // The command, or an error if oarlock-trainer is neither next to this program nor in PATH.
  const Result<std::vector<std::string>>& program() const { return program_; }

  // Runs `oarlock-trainer --check` on the file of the user, so that messages have its line numbers. They are written to
  // standard error, or with Stdio::kOutput to standard output. `is_only_job`: the file holds no other TrainingJob.
  // REQUIRES: applies_to(job) and program().
  Result<launch::GroupResult> run(const std::string& file, const api::TrainingJob& job, bool is_only_job,
                                  const std::vector<std::string>& settings, launch::Stdio stdio);

 private:
  const launch::SignalSource& signals_;
  const Clock& clock_;
  launch::Console& console_;
  launch::Environment environment_;
  Result<std::vector<std::string>> program_;
};

}  // namespace oarlock::cli
