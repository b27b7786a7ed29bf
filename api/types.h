// TrainingJob as plain values. The types contain only implemented fields: a field that the operator would ignore is not
// part of the CRD, so that no user relies on it. A new field is added to a struct and to its description in spec.cc or
// types.cc, from which the JSON and YAML codecs, the validation of limits and manifests/crd follow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/spec.h"
#include "common/boxed_optional.h"
#include "common/clock.h"
#include "common/contract.h"
#include "fields/fields.h"

namespace oarlock::api {

// The annotation, or the label, of a job that Kueue's MultiKueue has created in this cluster: the name of its Workload.
inline constexpr char kAnnotationPrebuiltWorkload[] = "kueue.x-k8s.io/prebuilt-workload-name";

// The fields of ObjectMeta that reconcile() needs; all others are dropped.
struct Metadata {
  std::string name;
  std::string namespace_name = "default";
  std::string uid;
  std::string resource_version;  // opaque; compared for equality only
  int64_t generation = 0;        // counts changes of the spec
  std::optional<SystemTime> creation_timestamp;
  std::optional<SystemTime> deletion_timestamp;  // present if the job is being deleted
  std::string queue;                             // label kLabelQueue; empty: none
  std::string priority_class;                    // label kLabelPriorityClass; empty: none
  std::string prebuilt_workload;                 // annotation or label kAnnotationPrebuiltWorkload; empty: none

  bool operator==(const Metadata&) const = default;
};

enum class Phase { kNone, kPending, kRunning, kStalled, kRestarting, kSuspended, kComplete, kFailed };

// Returns the name of the phase, which is used in status.phase and as the type of the phase's condition; "" for kNone.
std::string to_string(Phase phase);
std::span<const std::pair<std::string_view, Phase>> phase_names();  // without kNone
bool is_phase_name(std::string_view name);

// Types of the operator's conditions that are not named after a phase. Each exists, with status True, while it applies.
inline constexpr char kConditionCheckpointsNotKept[] = "CheckpointsNotKept";  // control::keeps_checkpoints() is false
inline constexpr char kConditionPodsUnlabeled[] = "PodsUnlabeled";  // the job's label was removed from one of its pods
inline constexpr char kConditionUnreadable[] = "Unreadable";        // ReadReport::problem
inline constexpr char kConditionUnknownFields[] = "UnknownFields";  // ReadReport::unknown
// Returns whether the operator sets conditions of this type.
bool is_own_condition(std::string_view type);
constexpr bool is_terminal(Phase phase) { return phase == Phase::kComplete || phase == Phase::kFailed; }
// Returns whether all pods of the attempt have started, with or without progress of the training.
constexpr bool is_running(Phase phase) { return phase == Phase::kRunning || phase == Phase::kStalled; }

// A status condition. Conditions that other controllers add are preserved unchanged.
struct Condition {
  std::string type;                   // the name of a Phase, or a type of another controller
  bool status = false;                // "True" or "False"
  std::string reason;                 // one CamelCase word
  std::string message;                // human-readable
  SystemTime last_transition_time{};  // when `status` last changed
  // The members of another controller's condition as JSON text, which are written back unchanged; the members above
  // except for `type` are then unset. Empty for the operator's own conditions.
  std::string verbatim{};
  std::string unknown_members{};  // members that this version does not define, as JSON text

  bool operator==(const Condition&) const = default;
};

// Numbers of pods of the current attempt.
struct NodeCounts {
  int desired = 0;
  int scheduled = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  std::string summary;  // "1/2": ready of desired; the READY column

  bool operator==(const NodeCounts&) const = default;
};

// The node ranks of an attempt whose pods are done: the trainer ended with exit code 0, or in a way that a rule
// ignores. A rank stays done if its pod is removed afterwards (autoscaler, PodGC, kubectl delete).
//
// The record is in the status and not a finalizer on each pod, as the Job controller uses it, because pods with a
// finalizer cannot be deleted once the operator is uninstalled, and a finalizer costs two more writes for each pod. One
// window remains: a pod that succeeds and is removed while no operator process runs, neither the leader nor a standby,
// counts as lost. A running operator keeps such a pod in memory until the record exists (shell/cache.h).
struct FinishedRanks {
  int attempt = 0;         // the record is ignored if this is not status.attempt
  std::string node_ranks;  // "0-2,5": the format of control::format_rank_set()

  bool operator==(const FinishedRanks&) const = default;
};

struct RestartCount {
  std::string reason;  // one of control::restart_reasons()
  int count = 0;
  std::string unknown_members{};  // as in Condition

  bool operator==(const RestartCount&) const = default;
};

// How far the job has come: the highest numbers that its ranks have reported, in all attempts.
struct HighestProgress {
  std::optional<int64_t> step{};             // absent if they have reported none
  std::optional<int64_t> checkpoint_step{};  // of the newest checkpoint

  bool operator==(const HighestProgress&) const = default;
};

// Failures after progress, and how far the job has come: the maxima over all attempts that failed.
struct AfterProgress {
  int count = 0;  // restarts and replaced pods that count against maxTotalRestarts only
  std::optional<int64_t> step{};
  std::optional<int64_t> checkpoint_step{};
  int failures = 0;  // of the group since the last progress, if it reports steps

  bool operator==(const AfterProgress&) const = default;
};

struct Restarts {
  int total = 0;                                  // all group restarts
  int charged = 0;                                // restarts that count against failurePolicy.maxRestarts
  std::vector<RestartCount> reasons{};            // the total by reason
  BoxedOptional<AfterProgress> after_progress{};  // absent before the first restart or replaced pod

  bool operator==(const Restarts&) const = default;
};

// Recoveries from the loss of a rank in which the other ranks kept their state, as rank 0 reports them. They lose no
// step.
struct Recoveries {
  int64_t total = 0;   // of all attempts
  double seconds = 0;  // their total duration, from the detection of each loss until training continued
  // The part of the current attempt: rank 0 reports the sums since the start of its attempt.
  int attempt = 0;
  int64_t attempt_total = 0;
  double attempt_seconds = 0;
  std::string last_ranks;  // the ranks that the last recovery replaced, such as "0,3"
  std::string last_reason;
  std::optional<SystemTime> last_time;  // when the operator first observed the last recovery
  int pods = 0;                         // number of pods that were replaced while the attempt continued
  int charged = 0;                      // replacements that count against failurePolicy.maxRestarts

  bool operator==(const Recoveries&) const = default;
};

// Restarts of all processes of the group by the launchers in its pods, as the launcher of node rank 0 reports them
// (`oarlock launch --max-restarts`). The operator does not count them in `restarts`.
struct InPodRestarts {
  int64_t total = 0;   // of all attempts
  double seconds = 0;  // their total duration, from the failure of a rank until all processes were started again
  // The part of the current attempt, as in Recoveries.
  int attempt = 0;
  int64_t attempt_total = 0;
  double attempt_seconds = 0;
  std::optional<int> last_rank;  // the rank that failed first before the last one
  std::string last_reason;
  std::optional<SystemTime> last_time;  // when the operator first observed the last one

  bool operator==(const InPodRestarts&) const = default;
};

// A lost pod that a new one of the same name replaces, while the other pods of the attempt continue. The record exists
// until the new pod has started.
struct Replacement {
  int node_rank = 0;
  int attempt = 0;      // the record is ignored if this is not status.attempt
  std::string pod_uid;  // of the lost pod; empty if it did not exist any more
  SystemTime time{};    // when the replacement was decided
  std::string reason;   // as in AttemptRecord
  std::string message;
  std::string unknown_members{};  // as in Condition

  bool operator==(const Replacement&) const = default;
};

// How the pods that are created now avoid a node, from the weakest to the strongest way.
enum class NodeAvoidance {
  kNone,       // not at all, because pods that preferred other nodes could not be placed
  kPreferred,  // other nodes are preferred
  kRequired,   // other nodes are required
};

// A node on which the job has failed.
struct BadNode {
  std::string name;
  int failures = 0;        // a failure of the hardware counts as failurePolicy.avoidNodesAfter of them
  SystemTime last_time{};  // of the last failure
  std::string reason;      // of the last failure, as in AttemptRecord
  NodeAvoidance avoidance = NodeAvoidance::kPreferred;
  std::string unknown_members{};  // as in Condition

  bool operator==(const BadNode&) const = default;
};
inline constexpr size_t kMaxBadNodes = 16;

// Nodes with pods of the job that are about to be drained or removed, and the checkpoint that was requested because of
// them.
struct Disruption {
  std::vector<std::string> nodes{};  // at most kMaxDisruptedNodes
  std::string reason{};              // why the last request was made: a node, and its taint or condition
  SystemTime request_time{};         // of the last request, in whole seconds, which identifies it

  bool operator==(const Disruption&) const = default;
};
inline constexpr size_t kMaxDisruptedNodes = 16;

// The bounds within which the launchers of an attempt continue in place with fewer nodes
// (oarlock launch --min-nodes and --shrink-after).
struct LauncherBounds {
  int min_nodes = 1;
  int shrink_after_seconds = 240;

  bool operator==(const LauncherBounds&) const = default;
};

// The decision about the launcher in the job's pods. It is made before the first pod, and again at a resume, so that an
// upgrade of the operator does not change the pods of a job that runs.
struct InjectedLauncher {
  std::string image;   // from which the pods copy the launcher; empty: they have none
  std::string reason;  // why they have none: NoCommand, NameTaken or Never

  bool operator==(const InjectedLauncher&) const = default;
};

// The TrainingProfile that is merged into a job's spec, as it was when the job started, or was resumed for the last
// time, so that a changed profile does not change a job that runs.
struct AppliedProfile {
  std::string name;
  std::string namespace_name;
  std::string uid;
  int64_t generation = 0;
  // Its spec as JSON text. Empty in a job that was read, whose spec is then the merged one. An empty value is not
  // written, so that a patch of the status preserves the stored one.
  std::string spec{};

  bool operator==(const AppliedProfile&) const = default;
};

// The queue of a job that Kueue admits. Whether a job has one is decided before its first pod, and again at a resume,
// so that a label that is changed in between neither stops pods nor lets them run without quota.
struct QueueStatus {
  std::string name;                  // of the LocalQueue
  std::string workload{};            // that MultiKueue has created for the job; empty: the operator creates it
  std::string cluster_queue;         // that has admitted the job; empty while the job waits
  std::vector<std::string> flavors;  // ResourceFlavors that the admission assigns, without duplicates
  std::optional<int> nodes;          // for which the admission assigns quota; absent while the job waits
  std::optional<SystemTime> since;   // since when the job waits, or is admitted

  bool operator==(const QueueStatus&) const = default;
};

// The size of an elastic job's group. All pods of an attempt are created with the same size and the same bounds, so
// they change with the attempt only.
struct GroupSize {
  int attempt = 0;  // the record is ignored if this is not status.attempt
  int nodes = 0;    // of the attempt
  // Absent if the launchers of the attempt need all nodes.
  std::optional<LauncherBounds> launchers{};
  std::optional<int> active_nodes{};  // the nodes that train, as rank 0 last reported; absent without `launchers`
  int wanted = 0;           // the last spec.nodes that was considered; another value of spec.nodes requests scaling
  std::string last_reason;  // of the last change of the size: Shrunk, Grown or Scaled
  std::optional<SystemTime> last_time;      // of the last change of the size
  std::optional<SystemTime> waiting_since;  // since when pods of the group wait for nodes; absent while none does
  int failed_growths = 0;                   // consecutive growths that did not last; each doubles the next interval

  bool operator==(const GroupSize&) const = default;
};

// The training progress that rank 0 last reported.
struct Progress {
  int64_t step = 0;
  std::optional<int64_t> target_steps;
  std::optional<int64_t> checkpoint_step;
  std::string completed;  // "42%"; empty if the target is not known; the PROGRESS column
  std::optional<double> loss;
  std::optional<double> samples_per_second;
  std::optional<SystemTime> eta;  // when the target is reached at the duration of the last step
  std::optional<SystemTime> updated_at;
  // When the operator last observed a change of `step`, or the first step of an attempt, by its own clock. Absent while
  // rank 0 has not reported since its process started.
  std::optional<SystemTime> last_step_time;

  bool operator==(const Progress&) const = default;
};

// Record of an attempt that ended. The status keeps the newest kMaxAttemptRecords of them.
struct AttemptRecord {
  int attempt = 0;
  std::optional<SystemTime> start_time;
  SystemTime end_time{};
  std::string reason;  // as in the condition
  std::string message;
  std::string pod;   // root cause of the failure; empty if it is not known
  std::string node;  // on which the pod ran
  std::optional<int> node_rank;
  std::optional<int> exit_code;
  std::string container{};    // whose exit code it is, if that is not the trainer but an init container
  std::optional<int> rank{};  // that failed first in that pod, by its termination message; absent without one
  // Absent if rank 0 of the attempt has not reported its progress.
  std::optional<int64_t> step;        // the last known one
  std::optional<int64_t> steps_lost;  // steps after the newest known checkpoint; absent without one
  // From `end_time` until a later attempt exceeded `step`, or without a step until all its pods had started.
  std::optional<int64_t> seconds_lost;
  // The pods may have saved a checkpoint when the attempt ended, because it was stopped and did not crash. Those of the
  // next attempt wait for them within their grace period.
  bool stopped = false;
  std::string unknown_members{};  // as in Condition

  bool operator==(const AttemptRecord&) const = default;
};
inline constexpr size_t kMaxAttemptRecords = 10;

// What the accelerators of the job have done since its creation (control::account_usage()). All times are in
// milliseconds. Those of the accelerators are multiplied by their number, and the classes sum to `allocated`.
struct Usage {
  int64_t accelerators_per_pod = 1;
  int64_t allocated = 0;  // time of the accelerators of pods with a node
  int64_t queued = 0;     // time of requested accelerators of pods without a node, while the job waits to start
  UsageMilliseconds classes{};
  int64_t until = 0;              // Unix time until which the time is divided
  int pods = 0;                   // that had a node at that time, and had not ended
  int attempt = 0;                // to which `step` and `reported` refer
  std::optional<int64_t> step{};  // that rank 0 last reported; absent before the first report of the attempt
  int64_t highest_step = 0;       // of all attempts
  BoxedOptional<UsageMilliseconds> reported{};  // by rank 0 of the attempt; absent if it reports no such times

  bool operator==(const Usage&) const = default;
};

// When the stages of an attempt's start were complete, in seconds since its pods were created. Absent before that.
struct Startup {
  int attempt = 0;
  std::optional<int64_t> scheduled{};     // all pods had nodes
  std::optional<int64_t> started{};       // all containers had started
  std::optional<int64_t> first_report{};  // of rank 0
  std::optional<int64_t> first_step{};    // after that of the first report
  std::optional<int64_t> step{};          // of the first report

  bool operator==(const Startup&) const = default;
};

struct Status {
  Phase phase = Phase::kNone;
  // status.phase if this version does not define it. `phase` is then derived from the rest of the status, and patches
  // preserve the stored value until the job enters another phase.
  std::string unknown_phase{};
  std::vector<Condition> conditions;  // in the order in which they were added
  int64_t observed_generation = 0;
  int world_size = 0;
  int attempt = 0;  // the current attempt; each restart and each resume increments it
  NodeCounts nodes;
  BoxedOptional<GroupSize> elastic;             // of elastic jobs, once the first attempt has a status
  BoxedOptional<FinishedRanks> finished_ranks;  // absent if no rank of the attempt is done
  Restarts restarts;
  BoxedOptional<Recoveries> recoveries;          // absent before the first one
  BoxedOptional<InPodRestarts> in_pod_restarts;  // absent before the first one
  std::vector<Replacement> replacements;         // by node rank
  std::vector<BadNode> bad_nodes;                // in the order of their last failures; at most kMaxBadNodes
  BoxedOptional<Disruption> disruption;          // absent unless the job runs and has a pod on such a node
  BoxedOptional<InjectedLauncher> launcher;      // absent if there was nothing to decide
  BoxedOptional<QueueStatus> queue;              // absent if no queue admits the job
  BoxedOptional<AppliedProfile> profile;         // absent if the job has none, or has not started
  BoxedOptional<Progress> progress;
  BoxedOptional<HighestProgress> highest_progress;  // absent before the first report
  std::optional<SystemTime> start_time;             // when pods were first created
  std::optional<SystemTime> attempt_start_time;     // when the pods of `attempt` were first created
  std::optional<SystemTime> completion_time;        // when the job became Complete or Failed
  std::vector<AttemptRecord> attempts;              // oldest first
  BoxedOptional<Startup> startup;                   // absent before the first status
  BoxedOptional<Usage> usage;                       // absent before the first status

  bool operator==(const Status&) const = default;
};

// How completely an object could be read.
struct ReadReport {
  std::string problem;               // why the object cannot be read as a TrainingJob; empty if it can
  std::vector<std::string> unknown;  // unknown fields and values of the spec, and unknown values of the status
  // Why the job, which awaits_start() (profile.h), cannot be merged with the profile in its status; its spec is then
  // its own. Empty if it can.
  std::string profile_problem;
  bool has_conditions = true;  // status.conditions contains every stored condition
  // spec.template, spec.trainer and failurePolicy.rules were dropped to save memory (shell/cached_objects.h).
  bool is_trimmed = false;
  uint32_t trimmed_kib = 0;  // size of the dropped fields, rounded up

  bool operator==(const ReadReport&) const = default;
};

struct TrainingJob {
  Metadata metadata;
  Spec spec;
  Status status;
  ReadReport report{};

  // Returns the nodes of the current attempt: spec.nodes, or the recorded size of an elastic job's group.
  int group_nodes() const;
  // Returns the ranks of the current attempt.
  int world_size() const { return group_nodes() * spec.processes_per_node; }

  bool operator==(const TrainingJob&) const = default;
};

// Describe the fields (fields/fields.h), in the order of manifests/crd. Only a reader changes the values.
void describe(Metadata& metadata, Fields& fields);
void describe(Spec& spec, Fields& fields);
void describe(Status& status, Fields& fields);

}  // namespace oarlock::api
