// Converts a job script of Slurm to a TrainingJob.
#pragma once

#include <string>

#include "cli/convert/job.h"
#include "cli/convert/report.h"
#include "common/error.h"

namespace oarlock::convert {

// Returns whether a text is a shell script and not YAML: it begins with "#!" or has a line "#SBATCH".
bool is_job_script(const std::string& text);

// Converts the #SBATCH options, the exported variables and the one command that trains: that of srun, or torchrun,
// accelerate or python. Other commands have a note. Fails with kConfig, with the line, if there is no such command,
// several of them, or one that the script computes; and for an option that a TrainingJob cannot satisfy.
Result<Converted> convert_sbatch(const std::string& script, const std::string& file, const ConvertOptions& options);

}  // namespace oarlock::convert
