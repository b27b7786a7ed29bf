// Checks spec.trainer of a TrainingJob by running oarlock-trainer, because only that program contains the tasks and
// their options.
#pragma once

#include <string>
#include <vector>

#include "api/types.h"
#include "cli/job_file.h"
#include "cli/launch/console.h"
#include "cli/launch/process.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::cli {

// Not thread-safe.
class TrainerCheck {
 public:
  // `clock` and `console` must outlive this object. `program` is in the place of oarlock-trainer, unless it is empty.
  TrainerCheck(const Clock& clock, launch::Console& console, const std::string& program = "");

  // Returns why oarlock-trainer cannot check spec.trainer of this job, as a part of a message: its container runs
  // another program or gives it settings, or its image is not oarlock/trainer, of any registry and tag, so that its
  // program may have other tasks. Empty if it can.
  static std::string obstacle(const api::TrainingJob& job);

  // The command, or an error if oarlock-trainer is neither next to this program nor in PATH.
  const Result<std::vector<std::string>>& program() const { return program_; }

  // Runs `oarlock-trainer --check` on the file of the user, so that messages have its line numbers, for the group of
  // `job`: each number of nodes from elastic.minNodes to nodes. `settings` are further arguments, such as "epochs=3";
  // without spec.trainer, they are the configuration. Messages are written to standard error. REQUIRES: program(), and
  // spec.trainer or settings.
  Result<launch::GroupResult> run(const InputFile& file, const api::TrainingJob& job,
                                  const std::vector<std::string>& settings, const launch::SignalSource& signals);

 private:
  const Clock& clock_;
  launch::Console& console_;
  launch::Environment environment_;
  Result<std::vector<std::string>> program_;
};

}  // namespace oarlock::cli
