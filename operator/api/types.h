// TrainingJob as plain values. Only what is implemented is here: a field that the operator would ignore is left out of
// the CRD, so that nobody relies on it. manifests/crd holds the schema; a unit test keeps the two equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

struct FailurePolicy {
  int max_restarts = 3;  // group restarts before the job fails

  bool operator==(const FailurePolicy&) const = default;
};

struct Rendezvous {
  int port = kDefaultMasterPort;  // MASTER_PORT

  bool operator==(const Rendezvous&) const = default;
};

struct Spec {
  int nodes = 1;               // pods in the group
  int processes_per_node = 1;  // ranks in each pod
  // A PodTemplateSpec as JSON text, carried through verbatim. Text, because a JSON tree costs ten times the memory.
  std::string pod_template;
  std::string trainer;  // the trainer's config as JSON text; empty: none
  FailurePolicy failure_policy;
  Rendezvous rendezvous;
  bool suspend = false;

  int world_size() const { return nodes * processes_per_node; }

  bool operator==(const Spec&) const = default;
};

enum class Phase { kNone, kPending, kRunning, kRestarting, kSuspended, kComplete, kFailed };

// "" for kNone, else the name as in status.phase and as the type of the condition that is true in it.
std::string to_string(Phase phase);
constexpr bool is_terminal(Phase phase) { return phase == Phase::kComplete || phase == Phase::kFailed; }

struct Condition {
  std::string type;                   // the name of a Phase
  bool status = false;                // "True" or "False"
  std::string reason;                 // one CamelCase word
  std::string message;                // for a person
  SystemTime last_transition_time{};  // when `status` last changed

  bool operator==(const Condition&) const = default;
};

// Pods of the current attempt.
struct NodeCounts {
  int desired = 0;
  int scheduled = 0;
  int ready = 0;
  int succeeded = 0;
  int failed = 0;
  std::string summary;  // "2/2": ready or succeeded of desired; the READY column

  bool operator==(const NodeCounts&) const = default;
};

struct Restarts {
  int total = 0;    // group restarts done
  int charged = 0;  // those that count against failurePolicy.maxRestarts

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

  bool operator==(const AttemptRecord&) const = default;
};
inline constexpr size_t kMaxAttemptRecords = 10;

struct Status {
  Phase phase = Phase::kNone;
  std::vector<Condition> conditions;  // in the order in which they first became known
  int64_t observed_generation = 0;
  int world_size = 0;
  int attempt = 0;  // of the pods that belong to the job now; grows with each restart and each resume
  NodeCounts nodes;
  Restarts restarts;
  std::optional<Progress> progress;
  std::optional<SystemTime> start_time;          // when pods were first created
  std::optional<SystemTime> attempt_start_time;  // when the pods of `attempt` were first created
  std::optional<SystemTime> completion_time;     // when the job became Complete or Failed
  std::vector<AttemptRecord> attempts;           // oldest first

  bool operator==(const Status&) const = default;
};

struct TrainingJob {
  Metadata metadata;
  Spec spec;
  Status status;

  bool operator==(const TrainingJob&) const = default;
};

}  // namespace oarlock::api
