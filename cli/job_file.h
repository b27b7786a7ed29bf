// TrainingJobs in files that people wrote.
#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// The TrainingJobs of a Kubernetes YAML file, in its order; documents of other kinds are left out. The problems of all
// documents come together, one line each: "file:line:col: path: message" (kConfig). Two jobs of the same name and
// namespace are a problem, and so are a file without a TrainingJob and a document that is no Kubernetes object. Fails
// also as read_file does.
Result<std::vector<api::TrainingJob>> load_jobs(const std::string& path);

// The one with the name; with an empty name the only one there is.
Result<api::TrainingJob> choose_job(std::vector<api::TrainingJob> jobs, const std::string& name,
                                    const std::string& path);

}  // namespace oarlock::cli
