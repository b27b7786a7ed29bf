// The observed state of one job, as plain values: what a decision depends on.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/types.h"
#include "common/boxed_optional.h"
#include "common/clock.h"
#include "common/contract.h"

namespace oarlock::control {

using Job = api::TrainingJob;

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

// The nodes that a pod avoids by its affinity (bad_nodes.h).
struct AvoidedNodes {
  std::vector<std::string> required{};   // other nodes are required
  std::vector<std::string> preferred{};  // other nodes are preferred
  bool operator==(const AvoidedNodes&) const = default;
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
  bool started = false;                    // a container, which may be an init container, has started
  std::optional<SystemTime> started_at{};  // when the trainer container started, by the node's clock
  std::optional<Termination> trainer;  // set once the trainer container has terminated, or an init container has failed
  std::string waiting_reason;          // of the first waiting (init) container: ImagePullBackOff, ContainerCreating ...
  std::string waiting_message;
  std::string regroup_key{};  // RegroupSecret::key_id; empty if the pod's launcher restarts no ranks
  ChosenImages images{};
  std::optional<Gang> gang{};
  std::optional<SystemTime> created{};  // metadata.creationTimestamp, by the API server's clock
  bool unlabeled = false;  // the job's label was removed: the pod is read live, and no watch reports its changes
  BoxedOptional<AvoidedNodes> avoided{};  // of a pod without a node
  bool nominated = false;  // status.nominatedNodeName: it has preempted others, and waits until they have ended

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
  // Nodes with pods of this job that are about to be drained or removed, and the taint or condition that announces it.
  // Empty unless the operator watches nodes.
  std::map<std::string, std::string> node_warnings{};
  bool are_node_warnings_unknown = false;  // the nodes have not been listed yet
  // The TrainingProfile of a job that may_apply_profile() (profile.h); absent if it has none, or if none can be read,
  // as `profiles_error` explains.
  BoxedOptional<api::AppliedProfile> profile{};
  std::string profiles_error{};
  // Whether the job may have a TrainingProfile that cannot be read now; the API server does not refuse them.
  bool is_profile_unknown = false;
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
  // The highest numbers in the reports of this attempt, of which `progress` is the last one.
  api::HighestProgress highest_reported;
  std::optional<SystemTime> progress_sent_at;  // when the poll was sent that `progress` is the response to
  int64_t accelerators_per_pod = 0;            // that the spec requests; 0: none
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

}  // namespace oarlock::control
