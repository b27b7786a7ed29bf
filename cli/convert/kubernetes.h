// Converts jobs of other operators to TrainingJobs: PyTorchJob and MPIJob of Kubeflow's training-operator and
// mpi-operator, TrainJob of Kubeflow Trainer with its runtime, and JobSet.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/job.h"
#include "cli/convert/report.h"
#include "common/error.h"
#include "common/yaml/reader.h"

namespace oarlock::convert {

// One document of an input, and the name of its file in messages.
struct SourceDocument {
  yaml::Node root;
  std::string file;
};

// Converts every job of the documents in their order. Runtimes of TrainJobs may come before or after them; documents of
// other kinds are skipped with a note. Fails with kConfig and one line per problem if a job cannot be converted, if its
// result would not be a valid TrainingJob, or if there is no job. With options.name there must be one job.
Result<std::vector<Converted>> convert_kubernetes(const std::vector<SourceDocument>& documents,
                                                  const ConvertOptions& options);

}  // namespace oarlock::convert
