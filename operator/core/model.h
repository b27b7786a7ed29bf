// The whole vocabulary of the decision: what is seen, what may be done, what was decided.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/contract.h"
#include "operator/api/types.h"

namespace oarlock::control {

using Job = api::TrainingJob;

// ---- what is seen ----------------------------------------------------------------------------------------------

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

// status.containerStatuses[name=trainer].state.terminated
struct Termination {
  int exit_code = 0;
  std::string reason;   // Completed, Error, OOMKilled, ContainerCannotRun ...
  std::string message;  // the termination message: JSON of oarlock-trainer, or the last line of the log
  std::optional<SystemTime> finished_at;

  bool operator==(const Termination&) const = default;
};

// A Pod, reduced to what the decision reads; the shell makes its texts single bounded lines, except for the termination
// message. Attempt and node rank are in the name (membership.h), which nobody can
// change.
struct Pod {
  std::string name;
  std::string uid;
  std::string resource_version;
  std::string owner_uid;  // of the owner reference with controller=true; empty: none
  // The controller is a TrainingJob of the name that the pod's name begins with. With the uid of another job than the
  // observed one, that job was deleted, and the garbage collector removes the pod.
  bool owner_is_job = false;
  PodPhase phase = PodPhase::kPending;
  std::string reason;     // status.reason: Evicted, NodeLost ...
  std::string message;    // status.message
  bool deleting = false;  // metadata.deletionTimestamp is set
  // By the API server's clock: when the pod's deletion was first requested or its DisruptionTarget became true.
  std::optional<SystemTime> stop_requested_at;
  bool scheduled = false;           // condition PodScheduled is true
  std::string unscheduled_message;  // message of PodScheduled while it is false
  bool ready = false;               // condition Ready is true
  std::string disruption;           // reason of condition DisruptionTarget when it is true: PreemptionByScheduler ...
  std::string pod_ip;
  std::string node_name;
  std::optional<Termination> trainer;  // of the trainer container, once it has ended
  std::string waiting_reason;  // of the first (init) container that waits: ImagePullBackOff, ContainerCreating ...
  std::string waiting_message;

  bool operator==(const Pod&) const = default;
};

struct Service {
  std::string name;
  std::string uid;
  std::string owner_uid;  // as for Pod
  bool owner_is_job = false;
  bool deleting = false;
  SystemTime created{};  // by the API server's clock

  bool operator==(const Service&) const = default;
};

// A NetworkPolicy, reduced to what the decision reads.
struct NetworkPolicy {
  std::string name;
  std::string uid;
  std::string owner_uid;  // as for Pod
  bool owner_is_job = false;
  bool deleting = false;
  std::string digest;  // spec_digest() of its spec

  bool operator==(const NetworkPolicy&) const = default;
};

// The shell's last question to rank 0 about its progress.
struct Question {
  SystemTime at{};  // when it was sent: what the answer says was so then, or later
  bool answered = false;

  bool operator==(const Question&) const = default;
};

struct Observed {
  Job job;
  // Those of the job's namespace that carry oarlock.dev/job-name=<job> or are owned by the job. Whether they really are
  // the job's is decided here, by the owner's uid. An object in the way that the shell met through AlreadyExists
  // belongs here too, labels or not. Order does not matter.
  std::vector<Pod> pods;
  std::vector<Service> services;
  std::vector<NetworkPolicy> network_policies;
  // JSON list of the NetworkPolicy peers that may connect to the metrics ports of every job's pods, from the operator's
  // flags. Absent: jobs get no NetworkPolicy, and existing ones are left alone.
  std::optional<std::string> metrics_peers;
  SystemTime now{};
  std::optional<RankStatus> progress;          // what rank 0 last told the shell, of whatever attempt
  std::optional<Question> asked;               // absent: the present rank 0 was not asked yet
  std::optional<SystemTime> step_received_at;  // when the step of `progress` was received first; absent: now
  // No operator has ever acted on the job: it is newer than the reign of this one, and this one looks at it for the
  // first time. False where that is not known.
  bool untouched = false;
  // What the API server last refused for this job (quota, admission, an invalid pod), in one line without anything that
  // changes from try to try; empty once a plan ran through. It is shown in the job's condition.
  std::string last_error;
};

// ---- what may be done ------------------------------------------------------------------------------------------
// The shell does the actions in order and stops at the first that fails; then it looks again and asks anew. So every
// prefix of a plan must leave a state from which reconcile finds its way.

// Live GET (not the cache) of the job. The uid and resourceVersion of Observed: go on. Anything else: stop; the cache
// was behind. A fence that costs less than PatchStatus, but keeps nobody else from writing.
struct ConfirmJobUnchanged {
  bool operator==(const ConfirmJobUnchanged&) const = default;
};

// Live GET. 404: go on. Anything else: stop; the cache was behind.
struct ConfirmPodAbsent {
  std::string name;

  bool operator==(const ConfirmPodAbsent&) const = default;
};

// POST. AlreadyExists: live GET; when its controller's uid is the job's, go on, else stop and show it in Observed.
struct CreateService {
  std::string name;
  std::string body;  // JSON

  bool operator==(const CreateService&) const = default;
};

// POST, with the same rule.
struct CreateNetworkPolicy {
  std::string name;
  std::string body;  // JSON

  bool operator==(const CreateNetworkPolicy&) const = default;
};

// PUT. The body carries the uid as its precondition. 404 or another uid (409): stop; the cache was behind.
struct ReplaceNetworkPolicy {
  std::string name;
  std::string body;  // JSON

  bool operator==(const ReplaceNetworkPolicy&) const = default;
};

// POST, with the same rule. The body is PodFactory(job, attempt).text(node_rank) and is not part of the plan: a plan
// for thousands of nodes would hold the template and spec.trainer as many times. The shell makes each body when it
// sends it.
struct CreatePod {
  std::string name;
  int attempt = 0;
  int node_rank = 0;

  bool operator==(const CreatePod&) const = default;
};

// DELETE with preconditions. 404 and a uid that differs (409): it is gone, go on. A resourceVersion that differs: stop.
struct DeletePod {
  std::string name;
  std::string uid;
  std::string resource_version;  // empty: not a precondition
  std::string reason;            // for the log

  bool operator==(const DeletePod&) const = default;
};

// DELETE of the Service with its uid as precondition, as for a pod.
struct DeleteService {
  std::string name;
  std::string uid;

  bool operator==(const DeleteService&) const = default;
};

// DELETE of the NetworkPolicy with its uid as precondition, as for a pod.
struct DeleteNetworkPolicy {
  std::string name;
  std::string uid;

  bool operator==(const DeleteNetworkPolicy&) const = default;
};

// DELETE of the job itself with preconditions, in the background: the garbage collector takes what it owns. 404 and a
// uid that differs: it is gone, go on. A resourceVersion that differs: stop.
struct DeleteJob {
  std::string name;
  std::string uid;
  std::string resource_version;

  bool operator==(const DeleteJob&) const = default;
};

// api::status_patch(job.metadata, status). 409: stop. It may equal the present status: then it is a fence, which
// changes nothing on the server and only proves that the job in Observed was the newest.
struct PatchStatus {
  api::Status status;
  bool conditions_only = false;  // api::conditions_patch: the rest of the stored status stays as it is

  bool operator==(const PatchStatus&) const = default;
};

// Best effort: a failure is logged and does not stop the plan.
struct EmitEvent {
  enum class Type { kNormal, kWarning };
  Type type = Type::kNormal;
  std::string reason;   // CamelCase: what happened
  std::string action;   // CamelCase: what the operator did about it
  std::string message;  // at most 1024 bytes
  std::string pod;      // name of the related pod; empty: none

  bool operator==(const EmitEvent&) const = default;
};

using Action =
    std::variant<ConfirmJobUnchanged, ConfirmPodAbsent, CreateService, CreateNetworkPolicy, ReplaceNetworkPolicy,
                 CreatePod, DeletePod, DeleteService, DeleteNetworkPolicy, DeleteJob, PatchStatus, EmitEvent>;

// ---- what was decided ------------------------------------------------------------------------------------------

enum class Verdict {
  kProgress,  // the actions bring the job forward
  kWait,      // nothing to do until something changes or requeue_after has passed
  kComplete,  // the job is Complete, Failed or being deleted; after the actions (leftovers) there is nothing to do
  kBlocked,   // a person must act: the status says what; the actions, if any, only report it
};
std::string to_string(Verdict verdict);

struct Plan {
  Verdict verdict = Verdict::kWait;
  std::vector<Action> actions;  // at most one PatchStatus
  std::optional<std::chrono::seconds> requeue_after;
  std::string reason;  // one line for the log

  bool operator==(const Plan&) const = default;
};

}  // namespace oarlock::control
