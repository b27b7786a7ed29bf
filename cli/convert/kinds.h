// The converters of single kinds, for kubernetes.cc. Each reads the fields of its kind from `root`, fills the draft,
// and reports what has no counterpart.
#pragma once

#include "cli/convert/job.h"
#include "cli/convert/report.h"

namespace oarlock::convert {

void convert_pytorchjob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft);
void convert_mpijob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft);
void convert_jobset(ObjectReader& root, const ConvertOptions& options, JobDraft& draft);
// `runtime` is the TrainingRuntime or ClusterTrainingRuntime of the job, or null if the input does not contain it.
void convert_trainjob(ObjectReader& root, ObjectReader* runtime, const ConvertOptions& options, JobDraft& draft);

// Reads a batch/v1 JobSpec at `job`: its pod template and its policies. The path of the main container is returned.
std::string convert_job_spec(ObjectReader& job, const std::vector<std::string>& main_names,
                             const ConvertOptions& options, JobDraft& draft);

}  // namespace oarlock::convert
