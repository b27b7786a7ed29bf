// Loads TrainingJobs from files of users.
#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "operator/api/types.h"

namespace oarlock::cli {

// Whether load_jobs() checks spec.template against the pod schema (pod_schema/pod_schema.h).
enum class TemplateCheck { kNone, kPodSchema };

// Returns the TrainingJobs of a Kubernetes YAML file in their order, and skips documents of other kinds. Fails with
// kConfig and one line per problem, "file:line:col: path: message", for all documents. Problems include two jobs with
// the same name and namespace, a file without a TrainingJob, and a document that is not a Kubernetes object. Also fails
// as read_file() does. `name` is the name of the file in messages; empty: its path.
Result<std::vector<api::TrainingJob>> load_jobs(const std::string& path, TemplateCheck check = TemplateCheck::kNone,
                                                const std::string& name = "");

// Returns the job with this name, or the only job if the name is empty. Fails with kUsage if there is no such job.
Result<api::TrainingJob> choose_job(std::vector<api::TrainingJob> jobs, const std::string& name,
                                    const std::string& path);

}  // namespace oarlock::cli
