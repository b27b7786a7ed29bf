// Converters of other descriptions of a training to TrainingJobs.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/command.h"
#include "cli/convert/job.h"
#include "cli/convert/pod.h"
#include "cli/convert/report.h"
#include "common/error.h"
#include "yaml/reader.h"

namespace oarlock::convert {

// ---- Kubernetes ----------------------------------------------------------------------------------------------------

// Jobs of other operators: PyTorchJob and MPIJob of Kubeflow's training-operator and mpi-operator, TrainJob of Kubeflow
// Trainer with its runtime, and JobSet.

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

// ---- Slurm ---------------------------------------------------------------------------------------------------------

// Returns whether a text is a shell script and not YAML: it begins with "#!" or has a line "#SBATCH".
bool is_job_script(const std::string& text);

// Converts the #SBATCH options, the exported variables and the one command that trains: that of srun, or torchrun,
// accelerate or python. Adds a note for each other command. Fails with kConfig, with the line, if there is no such
// command, several of them, or one that the script computes; and for an option that a TrainingJob cannot satisfy.
Result<Converted> convert_sbatch(const std::string& script, const std::string& file, const ConvertOptions& options);

// ---- Command lines -------------------------------------------------------------------------------------------------

// Converts a command line of torchrun or accelerate. Fails with kUsage for any other one.
Result<Converted> convert_command_line(const std::vector<std::string>& words, LauncherKind kind,
                                       const ConvertOptions& options);

// ---- QuantumGrav ---------------------------------------------------------------------------------------------------

// The configuration of QuantumGrav's trainers (train_ddp.yaml of its guide "Distributed Training with DDP").

struct QuantumGravOptions {
  std::string name = "quantumgrav";
  std::string image;
  std::vector<std::string> data;  // stores; empty: the stores that the file names
};

// Converts every key of the guide's example, or adds a note why it needs no counterpart. Types may be names or
// !pyobject. Fails with kConfig and one line per problem with file:line:column: an unknown section or key, an
// unsupported type, or no section `parallel`.
Result<Converted> convert_quantumgrav(const yaml::Node& root, const std::string& file,
                                      const QuantumGravOptions& options);

// ---- Single kinds of Kubernetes objects, for kubernetes.cc ---------------------------------------------------------

// Each function reads the fields of its kind from `root`, fills the draft, and reports what has no counterpart.

void convert_pytorchjob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft);
void convert_mpijob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft);
void convert_jobset(ObjectReader& root, const ConvertOptions& options, JobDraft& draft);
// `runtime` is the TrainingRuntime or ClusterTrainingRuntime of the job, or null if the input does not contain it.
void convert_trainjob(ObjectReader& root, ObjectReader* runtime, const ConvertOptions& options, JobDraft& draft);

// Adds notes for the members of a JobSet's network that have no counterpart.
void drop_network(ObjectReader network);

// Reads a batch/v1 JobSpec at `job`: its pod template and its policies. Returns the path of the main container.
std::string convert_job_spec(ObjectReader& job, const std::vector<std::string>& main_names,
                             const ConvertOptions& options, JobDraft& draft);

}  // namespace oarlock::convert
