// The pod of a TrainingJob: its container 'trainer' with its command, environment and devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/convert/job.h"
#include "cli/convert/report.h"

namespace oarlock::convert {

inline constexpr char kGpuResource[] = "nvidia.com/gpu";

// Converts a PodTemplateSpec for draft.pod, whose place in the document is `path`. The main container is the one with
// one of the names `main_names`, or the only one. It becomes 'trainer'; its path in the document is returned.
std::string convert_pod(const Json& pod, const std::string& path, const std::vector<std::string>& main_names,
                        const ConvertOptions& options, Report& report, JobDraft& draft);

// Returns how many ranks the accelerators in the limits of a container are for: the GPUs that the operator counts for
// processesPerNode "auto", else the devices of other vendors whose number is that of the ranks; 0 without any.
int64_t accelerators_of(const Json& container);

// Converts the command of container 'trainer' after draft.nodes and draft.processes were read. `processes` of the
// source is kept only if the command starts several ranks. REQUIRES: convert_pod() was called.
void convert_container_command(const std::string& path, Report& report, JobDraft& draft);

// Sets the number of GPUs of a container: those of the resource that it has, or NVIDIA's.
void set_gpus(Json& container, int64_t gpus);

// Returns the container 'trainer' of a draft. Creates it if it does not exist.
Json& trainer_of(JobDraft& draft);

// Merges environment variables by name into a container; later ones take precedence.
void merge_environment(Json& container, const Json& variables);
void set_variable(Json& container, const std::string& name, const std::string& value);

}  // namespace oarlock::convert
