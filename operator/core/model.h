// The types of a decision: the actions that the operator can perform, and the plan that reconcile() returns, besides
// the observed state (observed.h). All types are plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/types.h"
#include "common/clock.h"
#include "operator/core/observed.h"

namespace oarlock::control {

// ---- Actions -----------------------------------------------------------------------------------------------------
// The shell executes the actions of a plan in order and stops at the first failure; then it observes the state and
// reconciles again. Every prefix of a plan must therefore leave a state from which reconcile() makes progress.

// Live GET (not from the cache) of the job. Continues if its uid and resourceVersion are those of Observed; otherwise
// the cache was stale, and the plan stops. This fence costs less than PatchStatus, but it does not prevent concurrent
// writes.
struct ConfirmJobUnchanged {
  bool operator==(const ConfirmJobUnchanged&) const = default;
};

// Live GET of a pod. Continues on 404, and if the pod has the uid `except_uid`; otherwise the plan stops, because the
// cache was stale, or because the label by which the informer selects the pod was removed. In the latter case the pod
// is added to Observed.
struct ConfirmPodAbsent {
  std::string name;
  std::string except_uid{};  // of a pod that is known to be lost; empty: none

  bool operator==(const ConfirmPodAbsent&) const = default;
};

// POST of the Service. On AlreadyExists the shell does a live GET: if the controller's uid is the job's, the plan
// continues; otherwise it stops, and the object is added to Observed.
struct CreateService {
  std::string name;
  std::string body;  // JSON

  bool operator==(const CreateService&) const = default;
};

// POST of the NetworkPolicy. AlreadyExists is handled as in CreateService.
struct CreateNetworkPolicy {
  std::string name;
  std::string body;  // JSON

  bool operator==(const CreateNetworkPolicy&) const = default;
};

// Creates the PersistentVolumeClaim, unless it exists: the claim of an earlier job of this name is used again. If that
// claim is being deleted, the plan stops. The claim outlives the job, so it is created only if the API server accepts a
// pod of the attempt in a dry run; otherwise the plan stops as it would at CreatePod.
struct CreateClaim {
  std::string name;
  int attempt = 0;
  std::string body;       // JSON
  ChosenImages images{};  // as in CreatePod

  bool operator==(const CreateClaim&) const = default;
};

// PUT of the NetworkPolicy. The body carries the uid as a precondition. On 404, or 409 because of another uid, the
// cache was stale, and the plan stops.
struct ReplaceNetworkPolicy {
  std::string name;
  std::string body;  // JSON

  bool operator==(const ReplaceNetworkPolicy&) const = default;
};

// POST of a pod. AlreadyExists is handled as in CreateService; a pod of the job without the job's label stops the plan,
// too, and is added to Observed. The body is that of a PodFactory with these members. The shell builds it when it sends
// the request, because a plan for thousands of nodes would otherwise contain the template and spec.trainer as many
// times.
struct CreatePod {
  std::string name;
  int attempt = 0;
  int node_rank = 0;
  bool is_replacement = false;                     // of a lost pod, while the other pods of the attempt continue
  int nodes = 1;                                   // of the attempt's group
  std::optional<api::LauncherBounds> launchers{};  // of the attempt
  ChosenImages images{};                           // `trainer` is empty: the job's, or the operator's default
  std::optional<Admission> admission{};            // of a job with a queue
  std::optional<Gang> gang{};                      // of the attempt
  BoxedOptional<AvoidedNodes> avoided{};           // by the status

  bool operator==(const CreatePod&) const = default;
};

// POST of the PodGroup. AlreadyExists is handled as in CreateService.
struct CreatePodGroup {
  GangApi api = GangApi::kNative;
  std::string name;
  std::string body;  // JSON

  bool operator==(const CreatePodGroup&) const = default;
};

// POST of the job's Workload, with the resources and the constraints of its pods. AlreadyExists is handled as in
// CreateService.
struct CreateWorkload {
  std::string name;
  std::string queue;
  int nodes = 1;
  std::optional<int> min_nodes{};  // for partial admission
  std::string replaces{};          // the Workload whose quota this one takes over; empty: none

  bool operator==(const CreateWorkload&) const = default;
};

// Live GET of the job's Workload. Continues if it has this resourceVersion; otherwise the plan stops, because the cache
// was stale: pods are neither created nor stopped because of an old admission.
struct ConfirmWorkloadUnchanged {
  std::string name;
  std::string resource_version;

  bool operator==(const ConfirmWorkloadUnchanged&) const = default;
};

// Changes the status of the job's Workload, which is read live. If it does not exist any more, has another uid, or does
// not need the change, the plan stops, because the cache was stale. Another failure of kReady or kNotReady does not
// stop it.
struct UpdateWorkload {
  enum class Change {
    kRelease,   // the eviction is complete: the quota is released, and Kueue may queue the Workload again
    kReady,     // PodsReady: all pods have started
    kNotReady,  // PodsReady is false: pods are starting again
    kSucceed,   // Finished
    kFail,      // Finished
  };
  std::string name;
  std::string uid;
  Change change = Change::kRelease;
  SystemTime time{};  // of the change
  std::string message{};

  bool operator==(const UpdateWorkload&) const = default;
};

// DELETE of the Workload with its uid and, unless it is empty, its resourceVersion as preconditions. 404 and 409 are
// handled as in DeletePod.
struct DeleteWorkload {
  std::string name;
  std::string uid;
  std::string resource_version{};

  bool operator==(const DeleteWorkload&) const = default;
};

// DELETE of the PodGroup with its uid as a precondition. 404 and 409 are handled as in DeletePod.
struct DeletePodGroup {
  GangApi api = GangApi::kNative;
  std::string name;
  std::string uid;

  bool operator==(const DeletePodGroup&) const = default;
};

// DELETE of a pod with preconditions. On 404, or 409 because of another uid, the pod no longer exists, and the plan
// continues. On another resourceVersion it stops.
struct DeletePod {
  std::string name;
  std::string uid;
  std::string resource_version;  // empty if it is not a precondition
  std::string reason;            // for the log

  bool operator==(const DeletePod&) const = default;
};

// DELETE of the Service with its uid as a precondition. 404 and 409 are handled as in DeletePod.
struct DeleteService {
  std::string name;
  std::string uid;

  bool operator==(const DeleteService&) const = default;
};

// DELETE of the NetworkPolicy with its uid as a precondition. 404 and 409 are handled as in DeletePod.
struct DeleteNetworkPolicy {
  std::string name;
  std::string uid;

  bool operator==(const DeleteNetworkPolicy&) const = default;
};

// DELETE of the job itself with preconditions and background propagation: the garbage collector deletes the objects
// that the job owns. 404 and 409 are handled as in DeletePod.
struct DeleteJob {
  std::string name;
  std::string uid;
  std::string resource_version;

  bool operator==(const DeleteJob&) const = default;
};

// PATCH with api::status_patch(job.metadata, status). On 409 the plan stops. The status may equal the stored one: the
// patch is then a fence, which changes nothing on the server and proves that the job in Observed was the newest
// version.
struct PatchStatus {
  api::Status status;
  bool conditions_only = false;  // sends api::conditions_patch instead; the rest of the stored status stays as it is

  bool operator==(const PatchStatus&) const = default;
};

// Emits an Event. Best effort: a failure is logged and does not stop the plan.
struct EmitEvent {
  enum class Type { kNormal, kWarning };
  Type type = Type::kNormal;
  std::string reason;   // CamelCase: the occurrence
  std::string action;   // CamelCase: the reaction of the operator
  std::string message;  // at most 1024 bytes
  std::string pod;      // name of the related pod; empty if there is none

  bool operator==(const EmitEvent&) const = default;
};

using Action = std::variant<ConfirmJobUnchanged, ConfirmPodAbsent, CreateService, CreateClaim, CreateNetworkPolicy,
                            ReplaceNetworkPolicy, CreatePod, CreatePodGroup, CreateWorkload, ConfirmWorkloadUnchanged,
                            UpdateWorkload, DeleteWorkload, DeletePodGroup, DeletePod, DeleteService,
                            DeleteNetworkPolicy, DeleteJob, PatchStatus, EmitEvent>;

// ---- Plan --------------------------------------------------------------------------------------------------------

enum class PlanState {
  kProgress,  // the actions advance the job
  kWait,      // no action is due until the observed state changes or requeue_after has passed
  kComplete,  // the job is Complete, Failed or being deleted; no action remains after these
  kBlocked,   // a user must act, as the status explains; the actions, if any, only report it
};
std::string to_string(PlanState state);

struct Plan {
  PlanState state = PlanState::kWait;
  std::vector<Action> actions;  // contains at most one PatchStatus
  std::optional<std::chrono::seconds> requeue_after;
  std::string reason;  // one line for the log

  bool operator==(const Plan&) const = default;
};

// ---- Helpers that build plans --------------------------------------------------------------------------------------

// When a job is reconciled again if its cache is known to be stale.
inline constexpr std::chrono::seconds kStaleCacheRequeue{1};
// Delay between two reads of a pod that no watch reports (Pod::unlabeled).
inline constexpr std::chrono::seconds kUnlabeledRequeue{30};

Plan make_plan(PlanState state, std::string reason, std::optional<std::chrono::seconds> requeue_after = std::nullopt);

// Sanitizes `message` and shortens it to the length that an Event can hold.
EmitEvent make_event(EmitEvent::Type type, const char* reason, const char* action, const std::string& message,
                     const std::string& pod = "");

void append(std::vector<Action>& to, std::vector<Action> from);

// Returns the shorter of two requeue delays. Either may be absent.
std::optional<std::chrono::seconds> earliest(std::optional<std::chrono::seconds> a,
                                             std::optional<std::chrono::seconds> b);

// Returns the time from `now` until `then` in whole seconds, rounded up; absent if `then` is absent or has passed.
std::optional<std::chrono::seconds> time_until(std::optional<SystemTime> then, SystemTime now);

// Whether the number of the job's attempt can be incremented. The largest one is reached only if a client or the name
// of a pod has set it.
bool has_next_attempt(const Job& job);

// Returns the end of a delay that began at the recorded time `since`. If that is more than a minute after `now`, it was
// recorded with a clock that was wrong, and the delay is over.
SystemTime end_of_delay(SystemTime since, std::chrono::seconds delay, SystemTime now);

// Limits a period of a stored job to the schema's range. The job may violate the schema, and a longer period would
// overflow SystemTime.
std::chrono::seconds clamp_period(int64_t value);

// Increments a stored count, which may be any number, and does not overflow.
void increment(int& count);

}  // namespace oarlock::control
