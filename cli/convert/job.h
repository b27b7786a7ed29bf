// The parts of a TrainingJob that all converters share: metadata, policies, and the validation of the result. pod.h has
// the pod.
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
  std::optional<int64_t> pending_timeout_seconds;
  std::string exclusive_topology;  // key of the label of nodes
  std::optional<int64_t> ttl_seconds_after_finished;
  std::optional<bool> suspend;
  std::string managed_by;
  std::string main_container;  // its name in the source, for rules that name containers
  Json pod = Json::object();   // a PodTemplateSpec whose container 'trainer' exists
};

// Copies name, namespace, labels and annotations. Adds notes for labels and annotations that other programs read, and
// for each other member that the API server did not set.
Json convert_metadata(ObjectReader metadata, const ConvertOptions& options);

enum class EntriesOf { kJob, kPod };

// Returns the labels or annotations at `path`, of a job or of the template of its pods, for the TrainingJob. Adds a
// note for each one that is not a string, that another program reads, or that is left out.
Json own_entries(const Json& map, const std::string& path, EntriesOf object, Report& report);

// The note on fields of peers that request gang scheduling.
inline constexpr char kGangsNeedNoField[] =
    "a gang scheduler of the cluster places all pods of a job together, without a field (docs/guides/queues.md); not "
    "carried over";

// Sets exclusive_topology if the metadata has the annotation of JobSet for it.
void read_topology(const Json& metadata, JobDraft& draft);

// Adds a note for each label and annotation of an object that is not carried over: a Job, or a template of one. Calls
// read_topology().
void drop_metadata(ObjectReader metadata, const std::string& owner, JobDraft& draft);

// Sets a number of the draft that several members of a source can give. The first one counts; a later one that differs
// has a note at `path`.
void set_once(std::optional<int64_t>& target, std::optional<int64_t> value, const std::string& path, Report& report);

// Reads the number of ranks on each node, which is a number, also in a string, or a name: for JobDraft::processes.
std::string read_processes(ObjectReader& object, const std::string& key);

// Reads the members of a kubeflow.org RunPolicy into the draft.
void convert_run_policy(ObjectReader policy, JobDraft& draft);

// Reads spec.suspend. Users of Kueue set it so that Kueue starts the job: it is left out, with a note, if the job has a
// queue. REQUIRES: draft.metadata has the labels.
void convert_suspend(ObjectReader& spec, JobDraft& draft);

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

// Returns a name that Kubernetes accepts, made from a file name or the name of a Slurm job.
std::string object_name(const std::string& text);
// Returns the name of a file without its directory and without the part after the first period.
std::string stem_of(const std::string& path);

// Returns a member that is an object. Replaces a member of another type. `parent` must be an object.
Json& object_member(Json& parent, const char* key);

// Returns the TrainingJob. Fails with kConfig if it is not valid by the rules of the API server; the message names the
// fields of the TrainingJob.
Result<Json> finish_job(const JobDraft& draft, const std::string& file);

}  // namespace oarlock::convert
