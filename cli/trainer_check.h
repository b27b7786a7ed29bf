// spec.trainer of a TrainingJob, checked by oarlock-trainer itself: only it knows its tasks and their options.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/environment.h"
#include "cli/launch/process.h"
#include "cli/launch/signals.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::cli {

class TrainerCheck {
 public:
  // `signals`, `clock` and `console` must outlive this object.
  TrainerCheck(const launch::SignalSource& signals, const Clock& clock, launch::Console& console);

  // Whether oarlock-trainer reads spec.trainer of this job: it is given, and the template has no command of its own.
  static bool applies_to(const api::TrainingJob& job);

  // An error if oarlock-trainer is neither beside this program nor in PATH.
  const Result<std::vector<std::string>>& program() const { return program_; }

  // Runs `oarlock-trainer --check` on the file, so that its messages have the user's line numbers. They go to standard
  // error, and to standard output with Stdio::kOutput. `is_only_job`: the file holds no other TrainingJob.
  // REQUIRES: applies_to(job) and program().
  Result<launch::Verdict> run(const std::string& file, const api::TrainingJob& job, bool is_only_job,
                              const std::vector<std::string>& settings, launch::Stdio stdio);

 private:
  const launch::SignalSource& signals_;
  const Clock& clock_;
  launch::Console& console_;
  launch::Environment environment_;
  Result<std::vector<std::string>> program_;
};

}  // namespace oarlock::cli
