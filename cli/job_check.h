// The check of TrainingJobs in files that `oarlock validate` and `oarlock submit` share: by the rules of the API
// server, spec.template by the fields of a pod, and spec.trainer by oarlock-trainer.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.h"
#include "cli/job_file.h"
#include "common/error.h"

namespace oarlock::cli {

// The largest number of different values of spec.trainer that are checked of each file. Each check starts an
// oarlock-trainer, which takes about a second.
inline constexpr size_t kMaxTrainerChecks = 100;

struct JobCheckOptions {
  std::string_view command;       // that the user has given, such as "validate"
  bool any_pod_fields = false;    // spec.template is not checked
  bool any_trainer_keys = false;  // spec.trainer is not checked
  std::string trainer = {};       // the program that checks spec.trainer of all jobs; empty: oarlock-trainer
};

struct JobCheckResult {
  std::vector<InputFile> files;  // all of them, in the given order
  int exit_code = 0;             // the largest of all problems; 128 + the number of the signal that ended the check
  // The largest exit code of those oarlock-trainers that ended without a result; at least kUsage if a file exceeds
  // kMaxTrainerChecks.
  int no_result = 0;
};

// Called for each job of a file in which read_jobs() finds no problem and whose spec.trainer has none, in their order.
using OnValidJob = std::function<Result<void>(const InputFile& file, const api::TrainingJob& job)>;

// Called for the TrainingProfiles of such a file, before its jobs.
using OnValidProfile = std::function<Result<void>(const InputFile& file, const api::AppliedProfile& profile)>;

// Checks all jobs, and prints their problems, and the job_warnings() of each valid one, on standard error.
//
// spec.trainer of some jobs cannot be judged; a note states so: of jobs whose image is not oarlock/trainer, because it
// may have other tasks; of those whose container runs another program, unless `trainer` names it; of all if
// oarlock-trainer is not on this machine; of those for which it ends without a result, for example because of a signal;
// and of those beyond kMaxTrainerChecks. After about yaml::Problems::kMaxShown lines with problems of a file, the
// remaining jobs of the file are only counted.
//
// Signals end the process while it reads files, and then end the check. Fails with kUsage if no file is given or
// standard input twice, as InputFile::open(), if `trainer` is not a program, and if a callback fails.
Result<JobCheckResult> check_jobs(const std::vector<std::string>& files, const JobCheckOptions& options,
                                  const OnValidJob& on_valid, const OnValidProfile& on_valid_profile);

}  // namespace oarlock::cli
