// The parts of a TrainingJob that all converters share: the pod, the policies, and the validation of the result.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/convert/command.h"
#include "cli/convert/report.h"
#include "common/error.h"

namespace oarlock::convert {

inline constexpr char kGpuResource[] = "nvidia.com/gpu";

struct ConvertOptions {
  std::string name{};         // of the TrainingJob; empty: the name of the source
  std::string image{};        // of the container 'trainer'; empty: the image of the source
  std::optional<int> gpus{};  // on each node; absent: those of the source
};

// The members of a TrainingJob that a converter has read so far. Empty and absent ones are left out of the output.
struct JobDraft {
  Json metadata = Json::object();
  int64_t nodes = 1;
  std::optional<int64_t> min_nodes;  // of spec.elastic; absent: the job has a fixed size
  std::optional<int64_t> max_nodes;
  std::string processes;  // a number or "auto"; "" for 1
  std::optional<int64_t> max_restarts;
  Json failure_rules = Json::array();
  std::optional<int64_t> port;
  std::string success_policy;
  std::string clean_pod_policy;
  std::optional<int64_t> active_deadline_seconds;
  std::optional<int64_t> ttl_seconds_after_finished;
  std::optional<bool> suspend;
  std::string managed_by;
  Json pod = Json::object();  // a PodTemplateSpec whose container 'trainer' exists
};

// Copies name, namespace, labels and annotations. Other members are those of a stored object, and are left out.
Json convert_metadata(ObjectReader metadata, const ConvertOptions& options);

// Reads the members of a kubeflow.org RunPolicy into the draft.
void convert_run_policy(ObjectReader policy, JobDraft& draft);

// Converts spec.managedBy: the name of a controller of `own_domain` is left out, any other is kept.
void convert_managed_by(ObjectReader& spec, const std::string& own_domain, JobDraft& draft);

// Makes the job elastic with these bounds, of which the upper may be absent, unless they are equal. draft.nodes is
// moved into the bounds, with a note at `path`. Adds a problem if the bounds are in the wrong order.
void set_node_bounds(int64_t least, std::optional<int64_t> most, const std::string& path, Report& report,
                     JobDraft& draft);

// Makes a job whose number of pods is known elastic if its command is, with the bounds of the command. If they do not
// contain draft.nodes, or the job has other bounds, leaves the draft unchanged and returns the number of nodes that
// the command starts: "4 nodes", "2 to 4 nodes". Otherwise returns an empty text.
std::string take_node_bounds(const LaunchCommand& command, JobDraft& draft);

// Converts a PodTemplateSpec for draft.pod, whose place in the document is `path`. The main container is the one with
// one of the names `main_names`, or the only one. It becomes 'trainer'; its path in the document is returned.
std::string convert_pod(const Json& pod, const std::string& path, const std::vector<std::string>& main_names,
                        const ConvertOptions& options, Report& report, JobDraft& draft);

// Converts the command of container 'trainer' after draft.nodes and draft.processes were read. `processes` of the
// source is kept only if the command starts several ranks. REQUIRES: convert_pod() was called.
void convert_container_command(const std::string& path, Report& report, JobDraft& draft);

// Returns a name that Kubernetes accepts, made from a file name or the name of a Slurm job.
std::string object_name(const std::string& text);
// Returns the name of a file without its folder and without the part after the first period.
std::string stem_of(const std::string& path);

// Returns the container 'trainer' of a draft. Creates it if it does not exist.
Json& trainer_of(JobDraft& draft);

// Returns a member that is an object. Replaces a member of another type. `parent` must be an object.
Json& object_member(Json& parent, const char* key);

// Merges environment variables by name into a container; later ones take precedence.
void merge_environment(Json& container, const Json& variables);
void set_variable(Json& container, const std::string& name, const std::string& value);

// Returns the TrainingJob. Fails with kConfig if it is not valid by the rules of the API server; the message names the
// fields of the TrainingJob.
Result<Json> finish_job(const JobDraft& draft, const std::string& file);

}  // namespace oarlock::convert
