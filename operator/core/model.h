// The types of a decision: the observed state of one job, the actions that the operator can perform, and the plan that
// reconcile() returns. All types are plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/types.h"
#include "common/clock.h"
#include "common/contract.h"

namespace oarlock::control {

using Job = api::TrainingJob;

// ---- Observed state ----------------------------------------------------------------------------------------------

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

// status.containerStatuses[name=trainer].state.terminated, or that of an init container whose failure ended the pod
struct Termination {
  int exit_code = 0;
  std::string reason;   // Completed, Error, OOMKilled, ContainerCannotRun ...
  std::string message;  // the termination message: JSON of oarlock-trainer, or the last line of the log
  std::optional<SystemTime> finished_at;
  std::string init_container{};  // name of the init container; empty if the container is the trainer

  bool operator==(const Termination&) const = default;
};

// The images of a pod that the operator has chosen, and not its job. All pods of an attempt have the same ones, also if
// another version of the operator creates a part of them.
struct ChosenImages {
  std::string trainer;   // of container "trainer"; empty: the job names its image
  std::string launcher;  // from which the launcher is copied; empty: the pod has none but that of its image

  bool operator==(const ChosenImages&) const = default;
};

// The APIs with a kind PodGroup (gang.h).
enum class GangApi { kNative, kSchedulerPlugins, kVolcano };

// The PodGroup that a pod belongs to: a scheduler places its pods together or not at all.
struct Gang {
  GangApi api = GangApi::kNative;
  std::string pod_group;

  bool operator==(const Gang&) const = default;
};

// A Pod, reduced to the fields that the decision reads. The shell reduces its texts to single lines of bounded length,
// except for the termination message. The attempt and the node rank are read from the name (membership.h), because the
// name is immutable.
struct Pod {
  std::string name;
  std::string uid;
  std::string resource_version;
  std::string owner_uid;  // uid of the owner reference with controller=true; empty if the pod has no controller
  // The controller is a TrainingJob whose name is the beginning of the pod's name. If its uid is not that of the
  // observed job, that TrainingJob was deleted, and the garbage collector removes the pod.
  bool owner_is_job = false;
  PodPhase phase = PodPhase::kPending;
  std::string reason;     // status.reason: Evicted, NodeLost ...
  std::string message;    // status.message
  bool deleting = false;  // metadata.deletionTimestamp is set
  // When the pod's deletion was first requested or its condition DisruptionTarget became true, by the API server's
  // clock.
  std::optional<SystemTime> stop_requested_at;
  // metadata.deletionTimestamp: the end of the grace period of the deletion, by the API server's clock.
  std::optional<SystemTime> grace_ends_at{};
  // The grace period of the deletion, or the one that a deletion would have (terminationGracePeriodSeconds).
  int grace_seconds = 30;
  bool scheduled = false;                    // condition PodScheduled is true
  std::optional<SystemTime> scheduled_at{};  // when it became true, by the API server's clock; absent if not known
  std::string unscheduled_message;           // message of condition PodScheduled while it is false
  bool ready = false;                        // condition Ready is true
  bool unreachable = false;                  // the node controller has marked the pod, because its node is not ready
  std::string disruption;  // reason of condition DisruptionTarget while it is true: PreemptionByScheduler ...
  std::string pod_ip;
  std::string node_name;
  bool started = false;                // a container, which may be an init container, has started
  std::optional<Termination> trainer;  // set once the trainer container has terminated, or an init container has failed
  std::string waiting_reason;          // of the first waiting (init) container: ImagePullBackOff, ContainerCreating ...
  std::string waiting_message;
  std::string regroup_key{};  // RegroupSecret::key_id; empty if the pod's launcher restarts no ranks
  ChosenImages images{};
  std::optional<Gang> gang{};
  std::optional<SystemTime> created{};  // metadata.creationTimestamp, by the API server's clock
  bool unlabeled = false;  // the job's label was removed: the pod is read live, and no watch reports its changes

  bool operator==(const Pod&) const = default;
};

struct Service {
  std::string name;
  std::string uid;
  std::string owner_uid;  // as in Pod
  bool owner_is_job = false;
  bool deleting = false;
  SystemTime created{};       // by the API server's clock
  std::string regroup_key{};  // RegroupSecret::key_id of the pods that are created now; empty: they get no token

  bool operator==(const Service&) const = default;
};

// A NetworkPolicy, reduced to the fields that the decision reads.
struct NetworkPolicy {
  std::string name;
  std::string uid;
  std::string owner_uid;  // as in Pod
  bool owner_is_job = false;
  bool deleting = false;
  std::string digest;  // spec_digest() of its spec

  bool operator==(const NetworkPolicy&) const = default;
};

// What Kueue assigns to the pods of an admitted job.
struct Admission {
  std::string cluster_queue;
  int nodes = 0;                       // for which quota is assigned
  std::vector<std::string> flavors{};  // ResourceFlavors, sorted, without duplicates
  std::string pod_updates{};           // the admission checks' podSetUpdates as a JSON list; empty if there are none
  bool has_topology = false;           // Kueue places each pod, and removes its scheduling gate

  bool operator==(const Admission&) const = default;
};

// A Workload of Kueue, reduced to the fields that the decision reads. Its texts are single lines of bounded length.
struct Workload {
  std::string name;
  std::string uid;
  std::string resource_version;
  std::string owner_uid;  // as in Pod
  bool deleting = false;
  std::string queue{};      // spec.queueName
  int nodes = 0;            // for which quota is requested
  bool has_quota = false;   // condition QuotaReserved is true
  bool admitted = false;    // condition Admitted is true
  bool evicted = false;     // condition Evicted is true
  bool finished = false;    // condition Finished is true
  bool pods_ready = false;  // condition PodsReady is true
  bool requeued = false;    // condition Requeued is true: Kueue may admit an evicted one again
  bool has_checks = false;  // admission checks
  std::string reason{};     // of condition Evicted while it is true, otherwise of the condition that is not true yet
  std::string message{};    // of the same condition
  Admission admission{};    // of a Workload with quota

  bool operator==(const Workload&) const = default;
};

// A PodGroup, reduced to the fields that the decision reads.
struct PodGroup {
  GangApi api = GangApi::kNative;
  std::string name;
  std::string uid;
  std::string owner_uid;  // as in Pod
  bool deleting = false;

  bool operator==(const PodGroup&) const = default;
};

// The last finished poll of rank 0's /statusz.
struct StatusPoll {
  SystemTime sent_at{};    // when the request was sent; the response describes this moment or a later one
  bool answered = false;   // with the status of a rank
  bool reachable = false;  // it answered so, or its launcher did, whose ranks have not reported

  bool operator==(const StatusPoll&) const = default;
};

// What a node answered to a request for /statusz after its job had stopped to step. The texts are single lines of
// bounded length.
struct StallReport {
  int node_rank = 0;
  bool answered = false;
  std::vector<RankActivity> ranks{};

  bool operator==(const StallReport&) const = default;
};

struct Observed {
  Job job;
  // Objects in the job's namespace that have the label oarlock.dev/job-name=<job>, and those without it that a request
  // showed to exist: their name made a create fail with AlreadyExists, or ConfirmPodAbsent found them. The decision
  // compares the owner's uid to determine which of them the job owns. The order is irrelevant.
  std::vector<Pod> pods;
  std::vector<Service> services;
  std::vector<NetworkPolicy> network_policies;
  // The Workloads of a job that may have a queue; absent if Kueue's API cannot be read, as `workloads_error` explains.
  std::optional<std::vector<Workload>> workloads{};
  std::string workloads_error{};
  std::vector<GangApi> gang_apis{};  // those that the API server serves
  std::vector<PodGroup> pod_groups{};
  // JSON list of the NetworkPolicy peers that may connect to the metrics ports of every job's pods, from the operator's
  // flags. If absent, jobs get no NetworkPolicy, and existing ones are not changed.
  std::optional<std::string> metrics_peers;
  // The TrainingProfile of a job that may_apply_profile() (profile.h); absent if it has none, or if none can be read,
  // as `profiles_error` explains.
  BoxedOptional<api::AppliedProfile> profile{};
  std::string profiles_error{};
  std::string launcher_image;  // from the operator's flags; empty: jobs that start now get no launcher
  // From the operator's flags: scheduling.pendingTimeoutSeconds of jobs that do not set it; absent: none.
  std::optional<int> pending_timeout_seconds{};
  SystemTime now{};
  std::optional<RankStatus> progress;      // the last status that rank 0 of any attempt reported
  std::optional<LauncherStatus> launcher;  // the last one that the launcher or rank 0 of any attempt reported
  std::optional<StatusPoll> last_poll;     // absent if the present rank 0 has not been polled yet
  // What the nodes of a job have reported since its rank 0 does not step (stall_to_explain()); absent until then.
  std::optional<std::vector<StallReport>> stall_reports{std::in_place};
  std::optional<SystemTime> step_received_at;  // when `progress` first had its step; absent: now
  // No operator has performed an action for the job: it was created after this process became leader, and this process
  // reconciles it for the first time. False if that is not known.
  bool untouched = false;
  // Why the API server rejects the pods of this job whatever the state of the cluster: an unknown field or an invalid
  // value, on one line with the path in the job. Empty if no pod was rejected for such a reason.
  std::string template_error;
  // The last other error with which the API server rejected a write for this job (quota, admission), on one line and
  // without parts that vary between attempts. Empty once a plan was executed completely. It is shown in the job's
  // condition.
  std::string last_error;
};

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
