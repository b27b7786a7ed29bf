// TrainingJob as plain values. Only what is implemented is here: a field that the operator would ignore is left out of
// the CRD, so that nobody relies on it. manifests/crd holds the schema; a unit test keeps the two equal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/contract.h"

namespace oarlock::api {

// What reconcile needs of metadata; nothing else is kept.
struct Metadata {
  std::string name;
  std::string name_space = "default";
  std::string uid;
  std::string resource_version;  // opaque; never compared for order here
  int64_t generation = 0;        // counts changes of the spec
  std::optional<SystemTime> creation_timestamp;
  std::optional<SystemTime> deletion_timestamp;  // set: somebody deletes the job

  bool operator==(const Metadata&) const = default;
};

// Names of an enumeration's values as the API has them; one list for reading, writing and checking.
template <typename Enum>
using Names = std::span<const std::pair<std::string_view, Enum>>;

// What a pod's failure does to the group.
enum class FailureAction {
  kRestart,      // restarts it, which counts against maxRestarts
  kRestartFree,  // restarts it, which does not count
  kFail,         // fails the job
  kIgnore,       // nothing: the pod counts as done
};
Names<FailureAction> failure_action_names();

enum class ExitCodeOperator { kIn, kNotIn };
Names<ExitCodeOperator> exit_code_operator_names();

// As in a Job's podFailurePolicy, for the container "trainer".
struct ExitCodeMatch {
  ExitCodeOperator operation = ExitCodeOperator::kIn;
  std::vector<int64_t> values;

  bool operator==(const ExitCodeMatch&) const = default;
};

struct PodConditionMatch {
  std::string type;
  std::string status = "True";

  bool operator==(const PodConditionMatch&) const = default;
};

// Exactly one of the three requirements is given.
struct FailureRule {
  FailureAction action = FailureAction::kRestart;
  std::optional<ExitCodeMatch> on_exit_codes;
  std::vector<std::string> on_pod_reasons;           // one of them
  std::vector<PodConditionMatch> on_pod_conditions;  // one of them

  bool operator==(const FailureRule&) const = default;
};

struct FailurePolicy {
  int max_restarts = 3;            // charged restarts before the job fails
  int backoff_seconds = 10;        // before the second of several quick restarts in a row; doubles with each
  std::vector<FailureRule> rules;  // the first that matches a pod decides about it

  bool operator==(const FailurePolicy&) const = default;
};

struct StallPolicy {
  int timeout_seconds = 600;  // without an optimizer step of rank 0, after which the job is Stalled

  bool operator==(const StallPolicy&) const = default;
};

// Which pods of a job that has ended are deleted.
enum class CleanPodPolicy { kRunning, kAll, kNone };
Names<CleanPodPolicy> clean_pod_policy_names();

// Whose success makes the job Complete.
enum class SuccessPolicy { kAllRanks, kRank0 };
Names<SuccessPolicy> success_policy_names();

struct Rendezvous {
  int port = kDefaultMasterPort;  // MASTER_PORT

  bool operator==(const Rendezvous&) const = default;
};

// spec.managedBy of jobs that this operator takes care of.
inline constexpr char kManagedBy[] = "oarlock.dev/operator";

struct Spec {
  int nodes = 1;               // pods in the group
  int processes_per_node = 1;  // ranks in each pod
  // A PodTemplateSpec as JSON text, carried through verbatim. Text, because a JSON tree costs ten times the memory.
  std::string pod_template;
  std::string trainer;  // the trainer's config as JSON text; empty: none
  FailurePolicy failure_policy;
  StallPolicy stall_policy;
  Rendezvous rendezvous;
  bool suspend = false;
  SuccessPolicy success_policy = SuccessPolicy::kAllRanks;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::kRunning;
  std::optional<int64_t> active_deadline_seconds;  // from the first start, or from the last resume
  std::optional<int> ttl_seconds_after_finished;
  std::string managed_by;  // empty, or kManagedBy: this operator

  int world_size() const { return nodes * processes_per_node; }
  bool is_managed_elsewhere() const { return !managed_by.empty() && managed_by != kManagedBy; }

  bool operator==(const Spec&) const = default;
};

enum class Phase { kNone, kPending, kRunning, kStalled, kRestarting, kSuspended, kComplete, kFailed };

// "" for kNone, else the name as in status.phase and as the type of the condition that is true in it.
std::string to_string(Phase phase);
Names<Phase> phase_names();  // without kNone
bool is_phase_name(std::string_view name);

// Types of the operator's own conditions that are no phase. Each is there, and true, while it applies.
inline constexpr char kConditionUnreadable[] = "Unreadable";        // ReadReport::problem
inline constexpr char kConditionUnknownFields[] = "UnknownFields";  // ReadReport::unknown
bool is_own_condition(std::string_view type);
constexpr bool is_terminal(Phase phase) { return phase == Phase::kComplete || phase == Phase::kFailed; }
// All pods of the attempt have started, whether or not the training moves.
constexpr bool is_running(Phase phase) { return phase == Phase::kRunning || phase == Phase::kStalled; }

// A condition of the operator's is named after a Phase. Those that other controllers add are kept as they are.
struct Condition {
  std::string type;                   // the name of a Phase, or whatever another controller chose
  bool status = false;                // "True" or "False"
  std::string reason;                 // one CamelCase word
  std::string message;                // for a person
  SystemTime last_transition_time{};  // when `status` last changed
  // The JSON object of another controller's condition, written back unchanged; the members above other than `type` are
  // then unset. Empty: the condition is the operator's.
  std::string verbatim{};
  std::string others{};  // members that this version does not know, as JSON text

  bool operator==(const Condition&) const = default;
};

// Pods of the current attempt.
struct NodeCounts {
  int desired = 0;
  int scheduled = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  std::string summary;  // "1/2": ready of desired; the READY column

  bool operator==(const NodeCounts&) const = default;
};

// Node ranks of an attempt whose pods are done: the trainer ended with exit code 0, or in a way that a rule ignores. A
// rank stays done when its pod is removed afterwards (autoscaler, PodGC, kubectl delete).
//
// This is a record in the status and not a finalizer on each pod, as the Job controller has it, because pods with a
// finalizer cannot be deleted once the operator is uninstalled, and a finalizer costs two more writes for each pod. The
// record leaves one window: a pod that succeeds and is removed while no operator process runs, neither the leader nor a
// standby, counts as lost. A running operator remembers such a pod until the record exists (shell/removed_pods.h).
struct FinishedRanks {
  int attempt = 0;         // a record of another attempt than status.attempt means nothing
  std::string node_ranks;  // "0-2,5"; control::format_rank_set()

  bool operator==(const FinishedRanks&) const = default;
};

struct RestartCount {
  std::string reason;  // of few: control::restart_reasons()
  int count = 0;
  std::string others{};  // as in Condition

  bool operator==(const RestartCount&) const = default;
};

struct Restarts {
  int total = 0;                      // group restarts done
  int charged = 0;                    // those that count against failurePolicy.maxRestarts
  std::vector<RestartCount> reasons;  // the total, by what made it necessary

  bool operator==(const Restarts&) const = default;
};

// What rank 0 last said.
struct Progress {
  int64_t step = 0;
  std::optional<int64_t> target_steps;
  std::optional<int64_t> checkpoint_step;
  std::string completed;  // "42%"; empty when the target is not known; the PROGRESS column
  std::optional<double> loss;
  std::optional<double> samples_per_second;
  std::optional<SystemTime> eta;  // when the target is reached at the last step's pace
  std::optional<SystemTime> updated_at;
  // When the operator, by its own clock, last saw `step` change or the attempt begin to run. Absent: not seen yet.
  std::optional<SystemTime> last_step_time;

  bool operator==(const Progress&) const = default;
};

// Why an attempt ended; the newest kMaxAttemptRecords are kept.
struct AttemptRecord {
  int attempt = 0;
  std::optional<SystemTime> start_time;
  SystemTime end_time{};
  std::string reason;  // as in the condition
  std::string message;
  std::string pod;   // the first that failed; empty: none to blame
  std::string node;  // where it ran
  std::optional<int> node_rank;
  std::optional<int> exit_code;
  std::string others{};  // as in Condition

  bool operator==(const AttemptRecord&) const = default;
};
inline constexpr size_t kMaxAttemptRecords = 10;

struct Status {
  Phase phase = Phase::kNone;
  // status.phase where this version does not know it; `phase` is then derived from the rest of the status, and a patch
  // leaves the stored one alone until the job enters another phase.
  std::string unknown_phase{};
  std::vector<Condition> conditions;  // in the order in which they first became known
  int64_t observed_generation = 0;
  int world_size = 0;
  int attempt = 0;  // of the pods that belong to the job now; grows with each restart and each resume
  NodeCounts nodes;
  std::optional<FinishedRanks> finished_ranks;  // absent: no rank of the attempt is done
  Restarts restarts;
  std::optional<Progress> progress;
  std::optional<SystemTime> start_time;          // when pods were first created
  std::optional<SystemTime> attempt_start_time;  // when the pods of `attempt` were first created
  std::optional<SystemTime> completion_time;     // when the job became Complete or Failed
  std::vector<AttemptRecord> attempts;           // oldest first

  bool operator==(const Status&) const = default;
};

// How well an object could be read.
struct ReadReport {
  std::string problem;               // why the object cannot be read as a TrainingJob; empty: it can
  std::vector<std::string> unknown;  // fields and values of the spec, and values of the status, that are not known here
  bool has_conditions = true;        // status.conditions holds every stored condition
  // spec.template, spec.trainer and failurePolicy.rules were left out to save memory (shell/cached_job.h).
  bool is_trimmed = false;
  uint32_t trimmed_kib = 0;  // size of what was left out, rounded up

  bool operator==(const ReadReport&) const = default;
};

struct TrainingJob {
  Metadata metadata;
  Spec spec;
  Status status;
  ReadReport report{};

  bool operator==(const TrainingJob&) const = default;
};

}  // namespace oarlock::api
