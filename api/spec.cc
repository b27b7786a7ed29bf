// The descriptions of a job's metadata and spec, from which codecs, the CRD, its reference and validation follow.
#include "api/rules.h"
#include "api/types.h"
#include "fields/fields.h"

namespace oarlock::api {
namespace {

void describe_exit_codes(ExitCodeMatch& codes, Fields& fields) {
  fields.choice("operator", codes.operation, {{"In", ExitCodeOperator::kIn}, {"NotIn", ExitCodeOperator::kNotIn}},
                "Whether the exit code is one of the values, or none of them.");
  fields.field("values", codes.values,
               {.low = 1,
                .high = rules::kMaxExitCode,
                .min_items = 1,
                .max_items = rules::kMaxExitCode,
                .list_type = "set",
                .noun = "the exit code of a failure"},
               "Exit codes of a failed container, from 1 to 255.");
  fields.require("operator");
  fields.require("values");
}

void describe_pod_condition(PodConditionMatch& condition, Fields& fields) {
  fields.choice("type", condition.type, {{"DisruptionTarget", PodConditionType::kDisruptionTarget}},
                "Set when the cluster removes the pod: preemption, drain, taint, eviction.");
  fields.choice("status", condition.status, {{"True", PodConditionStatus::kTrue}}, "Value of the condition.");
  fields.require("type");
}

void describe_rule(FailureRule& rule, Fields& fields) {
  fields.choice("action", rule.action,
                {{"Restart", FailureAction::kRestart},
                 {"RestartFree", FailureAction::kRestartFree},
                 {"Fail", FailureAction::kFail},
                 {"Ignore", FailureAction::kIgnore}},
                "Restart: restart the group, which counts against maxRestarts. RestartFree: restart the group, which "
                "does not count. Fail: fail the job. Ignore: treat this pod as done and let the others continue.");
  fields.require("action");
  fields.section("onExitCodes", rule.on_exit_codes, describe_exit_codes,
                 "Matches the exit code of container 'trainer'.");
  fields.field("onPodReasons", rule.on_pod_reasons,
               {.max_length = rules::kMaxReason,
                .pattern = "^[A-Za-z][A-Za-z0-9]*$",
                .max_items = rules::kMaxRules,
                .list_type = "set",
                .noun = "one CamelCase word such as OOMKilled"},
               "Matches the reason of the pod or of container 'trainer', or the reason in status.attempts: OOMKilled, "
               "Evicted, PodDeleted, PodLost, or a reason that the trainer reports.");
  fields.list("onPodConditions", rule.on_pod_conditions, describe_pod_condition,
              {.max_items = rules::kMaxRules, .list_type = "atomic"}, "Matches a condition of the pod.");
}

void describe_failure_policy(FailurePolicy& policy, Fields& fields) {
  fields.field(
      "maxRestarts", policy.max_restarts, from_to(0, rules::kMaxRestarts),
      "Maximum number of restarts; the next failure fails the job. Restarts after a disruption (preemption, "
      "drain) do not count, nor do those after progress: a higher step or a newer "
      "checkpoint than at all failures before. Exit codes 64 to 78 other than 75 and 76 fail the job immediately. "
      "failurePolicy.rules take precedence.");
  fields.field("maxTotalRestarts", policy.max_total_restarts, from_to(0, rules::kMaxTotalRestarts),
               "Maximum number of restarts after failures, those after progress included. Default: ten times "
               "maxRestarts. Restarts after a disruption do not count.");
  fields.field(
      "maxFailuresAtStep", policy.max_failures_at_step, from_to(2, rules::kMaxRestarts),
      "Number of consecutive failures of the group without progress between them, after which the job fails "
      "although restarts are left: the last of them fails it. Programs that report no steps are not limited by "
      "it. Default: no such limit.");
  fields.field("backoffSeconds", policy.backoff_seconds, from_to(0, rules::kMaxBackoffSeconds),
               "Delay of the second of consecutive restarts whose attempts lasted less than 10 minutes. The first "
               "restart is immediate, and each further one has twice the previous delay, up to 5 minutes or this value "
               "if it is longer. 0: no delay.");
  fields.field("avoidNodesAfter", policy.avoid_nodes_after, from_to(0, rules::kMaxRestarts),
               "Number of failures of the job on one node after which its later pods must run on other nodes. After "
               "fewer failures, they prefer other nodes. A failure of the hardware (exit code 79, or a message about "
               "Xid, ECC or NVLink) has the effect of this number of failures. If pods cannot be placed for 60 s, they "
               "avoid the node less. 0: no node is avoided. See status.badNodes.");
  fields.field("avoidNodesSeconds", policy.avoid_nodes_seconds, from_to(1, rules::kMaxSeconds),
               "Time since the last failure on a node after which the node is not avoided any more.");
  // Without its unknown members, a rule could match failures that it should not match.
  fields.list("rules", policy.rules, describe_rule,
              {.max_items = rules::kMaxRules, .list_type = "atomic", .drops_unknown = true},
              "Actions for failed pods, as in podFailurePolicy of a Job: the first rule that matches the pod applies. "
              "Exit code 76 (a peer was lost) only matches a rule with operator In that lists it.");
  fields.choice(
      "restartScope", policy.restart_scope, {{"Group", RestartScope::kGroup}, {"Rank", RestartScope::kRank}},
      "Scope of a restart after a failure. Group: all pods, from the newest checkpoint. Rank: oarlock launch restarts "
      "failed ranks in their pods, and the operator replaces lost pods, while the other ranks keep their state and no "
      "step is lost; if that fails, the group restarts. An attempt recovers at most maxRestarts times, and each "
      "replaced pod counts as a restart. This is for oarlock-trainer and other programs that support regrouping; where "
      "spec.launcher has put the launcher into the pods, it restarts the processes of all ranks in their pods, from "
      "the "
      "newest checkpoint, which any program supports. Rank uses the port after rendezvous.port. A change applies to "
      "pods that are created afterwards.");
}

void describe_elastic(Elastic& elastic, Fields& fields) {
  fields.field("minNodes", elastic.min_nodes, from_to(1, rules::kMaxNodes), "Minimum number of nodes of the group.");
  fields.field("maxNodes", elastic.max_nodes, from_to(1, rules::kMaxNodes),
               "Maximum value of spec.nodes. Default: the limit of spec.nodes.");
  fields.field("shrinkAfterSeconds", elastic.shrink_after_seconds, from_to(1, rules::kMaxSeconds),
               "When pods of the group have waited for a node or for quota for this time, the group restarts with the "
               "pods that fit, if there are at least minNodes of them. The restart does not count against maxRestarts. "
               "A pod that is scheduled meanwhile delays it by up to 30 seconds. With restartScope Rank, a group whose "
               "lost pods have been missing for this time continues with the others in place, without a restart, and "
               "admits their replacements later.");
  fields.field("growAfterSeconds", elastic.grow_after_seconds, from_to(0, rules::kMaxSeconds),
               "A group that has run with fewer nodes than spec.nodes for this time restarts with spec.nodes. If nodes "
               "are still missing after a minute, it shrinks again, and the time until the next trial doubles, up to a "
               "day or this value if it is longer. 0: the group never grows automatically.");
}

void describe_resources(Resources& resources, Fields& fields) {
  fields.raw_object("requests", resources.requests, "Requested quantities by resource, such as cpu and memory.");
  fields.raw_object("limits", resources.limits, "Maximum quantities by resource, such as memory and nvidia.com/gpu.");
}

void describe_checkpoints(Checkpoints& checkpoints, Fields& fields) {
  fields.field("claimName", checkpoints.claim_name, {.min_length = 1, .max_length = rules::kMaxObjectName},
               "Name of an existing PersistentVolumeClaim that all nodes can mount.");
  fields.field("size", checkpoints.size,
               {.min_length = 1,
                .max_length = rules::kMaxQuantity,
                .pattern = R"(^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[kMGTPE]|([eE]\+?[0-9]{1,2}))?$)",
                .noun = "a quantity, such as 10Gi"},
               "Size of the PersistentVolumeClaim <job>-checkpoints, such as 10Gi. The operator creates it with "
               "ReadWriteOnce for one node and ReadWriteMany for several. It is kept when the job is deleted; a new "
               "job of the same name uses it and resumes.");
  fields.field("storageClassName", checkpoints.storage_class_name, {.max_length = rules::kMaxObjectName},
               "StorageClass of that claim. Default: the default StorageClass of the cluster.");
}

constexpr int kMaxPreflightLimit = 1'000'000;
constexpr int kMinPreflightTimeout = 60;  // a shorter time would count slow starts of containers as failures

void describe_preflight(Preflight& preflight, Fields& fields) {
  fields.field("timeoutSeconds", preflight.timeout_seconds, from_to(kMinPreflightTimeout, rules::kMaxSeconds),
               "Time in which the launchers of all pods must connect to that of node rank 0, from the start of its "
               "container. It includes the time in which the others pull their images.");
  fields.field(
      "minBandwidthMbps", preflight.min_bandwidth_mbps, from_to(1, kMaxPreflightLimit),
      "Minimum bandwidth of a TCP connection between two nodes in 10^6 bits in a second, while all nodes send. "
      "Default: it is measured, and not compared.");
  fields.field("maxLatencyMicroseconds", preflight.max_latency_microseconds, from_to(1, kMaxPreflightLimit),
               "Maximum time of a round trip between two nodes. Default: it is measured, and not compared.");
}

void describe_topology(Topology& topology, Fields& fields) {
  fields.field("key", topology.key,
               {.min_length = 1,
                .max_length = rules::kMaxLabelKey,
                .pattern = R"(^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?)"
                           R"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$)",
                .noun = "the key of a label of nodes, such as topology.kubernetes.io/zone"},
               "Key of a label of the nodes, such as topology.kubernetes.io/zone. Nodes with the same value are one "
               "domain.");
  fields.choice("mode", topology.mode,
                {{"Required", TopologyMode::kRequired},
                 {"Preferred", TopologyMode::kPreferred},
                 {"Exclusive", TopologyMode::kExclusive}},
                "Required: all pods of the job are in one domain. Preferred: they are, as far as they fit. Exclusive: "
                "they are in one domain in which no other TrainingJob has pods.");
  fields.require("key");
}

void describe_stall_policy(StallPolicy& policy, Fields& fields) {
  fields.field("timeoutSeconds", policy.timeout_seconds, from_to(1, rules::kMaxSeconds),
               "A running job whose rank 0 has not completed an optimizer step for this time is Stalled until "
               "the next step. Set it above the duration of the longest evaluation or checkpoint. It can be "
               "changed while the job runs. Jobs whose rank 0 never reports its progress are never Stalled.");
  fields.field(
      "startTimeoutSeconds", policy.start_timeout_seconds, from_to(1, rules::kMaxSeconds),
      "A job that has reported steps is Stalled, too, if it reports none for this time after a restart: "
      "of its pods, or of the processes in them. A restart of pods includes their preflight. It can be changed "
      "while the job runs.");
  fields.choice("action", policy.action, {{"None", StallAction::kNone}, {"Restart", StallAction::kRestart}},
                "None: the job is Stalled until the next step. Restart: the group restarts, which counts against "
                "failurePolicy.maxRestarts; if rank 0 does not respond, after timeoutSeconds once more. Set "
                "startTimeoutSeconds above the time of a restart until its first step, and timeoutSeconds above "
                "that of oarlock-trainer. It can be changed while the job runs.");
}

void describe_scheduling(Scheduling& scheduling, Fields& fields) {
  fields.field("pendingTimeoutSeconds", scheduling.pending_timeout_seconds, from_to(1, rules::kMaxSeconds),
               "If the pods of the group have not all been placed on nodes for this time, because of a lack "
               "of nodes or quota, those that were are deleted, so that other jobs can use their room. "
               "Default: the operator's flag --pending-timeout, otherwise never. It can be changed while the "
               "job runs.");
  fields.choice("pendingAction", scheduling.pending_action,
                {{"Retry", PendingAction::kRetry}, {"Fail", PendingAction::kFail}},
                "What follows after pendingTimeoutSeconds. Retry: all pods are created again after a delay "
                "that grows with the waiting time, up to 20 minutes, which does not count against "
                "failurePolicy.maxRestarts. Fail: the job fails.");
  fields.section("topology", scheduling.topology, describe_topology,
                 "Places the pods near to each other, with affinities that are added to those of "
                 "spec.template.");
}

// The number of pods and ranks.
void describe_size(Spec& spec, Fields& fields) {
  fields.field("nodes", spec.nodes, from_to(1, rules::kMaxNodes),
               "Number of pods in the group. Each pod receives its node rank as NODE_RANK. In an elastic job, the "
               "number can be changed while the job runs, also with kubectl scale: the group then restarts with the "
               "new number, and the restart does not count against maxRestarts.");
  fields.field("profile", spec.profile, {.max_length = rules::kMaxObjectName},
               "Name of the TrainingProfile whose spec is merged into this one when the job starts, and again when it "
               "is resumed: one in the namespace of the job, or otherwise in that of the operator. Default: the "
               "profile named default, if it exists. \"\": none.");
  fields.section("elastic", spec.elastic, describe_elastic,
                 "Allows the group to run with fewer nodes than spec.nodes while the cluster lacks capacity. The group "
                 "restarts from the newest checkpoint each time its size changes, unless the launchers continue with "
                 "the remaining nodes (failurePolicy.restartScope Rank).");
  fields.number_or_name(
      "processesPerNode", spec.processes_per_node, spec.processes_from, kAuto, from_to(1, rules::kMaxProcessesPerNode),
      "Number of ranks in each pod. auto: one rank for each GPU in the limits of container 'trainer', or one rank if "
      "there are no GPUs. Default: auto if resourcesPerNode is set, otherwise 1. More than one rank needs a launcher "
      "(that of spec.launcher, oarlock launch, torchrun), which starts the ranks and sets their RANK and LOCAL_RANK.");
}

// The contents of the pods.
void describe_pods(Spec& spec, Fields& fields) {
  fields.field("image", spec.image, {.min_length = 1, .max_length = rules::kMaxImage},
               "Image of container 'trainer'. Default: the image that the operator's flag --trainer-image specifies, "
               "otherwise the trainer image of the operator's version.");
  fields.section("resourcesPerNode", spec.resources_per_node, describe_resources,
                 "Resources of container 'trainer' in each pod. Set GPUs in limits.");
  fields.section("checkpoints", spec.checkpoints, describe_checkpoints,
                 "Storage of the checkpoints, which is mounted at /checkpoints as volume 'checkpoints'. Without this "
                 "field, and without such a volume in the template, checkpoints are in an emptyDir, and training "
                 "begins at step 0 after each restart.");
  fields.raw_object("template", spec.pod_template,
                    "Template of the pods (a PodTemplateSpec). It is merged into the pod that the operator builds; "
                    "containers and volumes are matched by name. If its container 'trainer' has an image, the template "
                    "is complete: it is used unchanged, with resourcesPerNode and checkpoints added. All containers "
                    "receive the environment variables of the pod's ranks.");
  fields.raw_object("trainer", spec.trainer,
                    "Configuration of oarlock-trainer, which is passed unchanged. Container 'trainer' reads it from "
                    "the file that OARLOCK_CONFIG names. Each pod has a copy as an annotation, so its size is limited "
                    "to 256 KiB, and to 256 MiB for the copies of all nodes together with the template.");
  fields.choice(
      "launcher", spec.launcher,
      {{"Auto", LauncherInjection::kAuto},
       {"Always", LauncherInjection::kAlways},
       {"Never", LauncherInjection::kNever}},
      "Auto: if container 'trainer' has its own image and command, an init container copies oarlock into the "
      "pod, and oarlock launch starts the command: one process for each rank, restarts in the pods with "
      "failurePolicy.restartScope Rank, progress, and the cause of a failure. With several ranks in each pod, only if "
      "the command is known to start "
      "them itself (torchrun ...). Always: with several ranks also for other commands, which are started once for each "
      "rank. Never: the command runs as it "
      "is, as does "
      "a command that contains oarlock launch. Decided when the job starts and when it is resumed; see "
      "status.launcher.");
}

// How the job ends, and what remains of it.
void describe_end(Spec& spec, Fields& fields) {
  fields.choice("successPolicy", spec.success_policy,
                {{"AllRanks", SuccessPolicy::kAllRanks}, {"Rank0", SuccessPolicy::kRank0}},
                "The job is Complete when container 'trainer' has ended with exit code 0 in all pods (AllRanks), or as "
                "soon as it has in the pod of node rank 0 (Rank0).");
  fields.choice("cleanPodPolicy", spec.clean_pod_policy,
                {{"Running", CleanPodPolicy::kRunning}, {"All", CleanPodPolicy::kAll}, {"None", CleanPodPolicy::kNone}},
                "Pods that are deleted when the job has ended. Running: those that still run. All: all pods, and thus "
                "their logs. None: no pods. The Service is deleted, too, except with None.");
  fields.field("activeDeadlineSeconds", spec.active_deadline_seconds, from_to(1, rules::kMaxSeconds),
               "A job that is active for longer fails with reason DeadlineExceeded. The time counts from the first "
               "start, and from the beginning again after each resume. It can be changed while the job runs.");
  fields.field("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, from_to(0, rules::kMaxSeconds),
               "Time after which a job that became Complete or Failed is deleted, with all objects that it owns. "
               "Default: it is never deleted.");
}

}  // namespace

void describe(Metadata& metadata, Fields& fields) {
  fields.field("name", metadata.name, "Name of the job.");
  fields.field("namespace", metadata.namespace_name, "Namespace of the job.");
  fields.field("uid", metadata.uid, "UID of the object.");
  fields.field("resourceVersion", metadata.resource_version, "Version of the object.");
  fields.field("generation", metadata.generation, "Number of changes of the spec.");
  fields.field("creationTimestamp", metadata.creation_timestamp, "When the object was created.");
  fields.field("deletionTimestamp", metadata.deletion_timestamp, "When the deletion was requested.");
  fields.section(
      "labels",
      [&](Fields& labels) {
        labels.field(kLabelQueue, metadata.queue, "Kueue's LocalQueue that admits the job.");
        labels.field(kLabelPriorityClass, metadata.priority_class, "Kueue's WorkloadPriorityClass of the job.");
      },
      "Labels.");
  fields.section(
      "annotations",
      [&](Fields& annotations) {
        annotations.field(kAnnotationPrebuiltWorkload, metadata.prebuilt_workload,
                          "Kueue's Workload of a job that MultiKueue has created.");
      },
      "Annotations.");
}

void describe(Spec& spec, Fields& fields) {
  describe_size(spec, fields);
  describe_pods(spec, fields);
  fields.section(
      "failurePolicy", [&](Fields& policy) { describe_failure_policy(spec.failure_policy, policy); },
      "How the failure of a rank is handled.");
  fields.section(
      "stallPolicy", [&](Fields& policy) { describe_stall_policy(spec.stall_policy, policy); },
      "When a running job that makes no progress becomes Stalled, and what follows.");
  fields.section(
      "preflight", spec.preflight, describe_preflight,
      "Before the ranks start, the launchers of all pods check the GPUs, the checkpoint directory, /dev/shm, "
      "the clocks and the network between the pods. A node that fails is named, and the next pods avoid it. "
      "Needs oarlock launch in the pods (spec.launcher). {} selects the checks without limits.");
  fields.section(
      "scheduling", [&](Fields& scheduling) { describe_scheduling(spec.scheduling, scheduling); },
      "The placement of the pods on nodes.");
  describe_end(spec, fields);
  fields.section(
      "rendezvous",
      [&](Fields& rendezvous) {
        rendezvous.field("port", spec.rendezvous.port, from_to(1, 65535), "MASTER_PORT, on which rank 0 listens.");
      },
      "How the ranks connect.");
  fields.field("suspend", spec.suspend,
               "true: the operator stops the pods and creates none until the field is false again; then the group "
               "restarts from its newest checkpoint. A resume does not count as a restart. Fields that are immutable "
               "while the job runs can be changed while it is suspended.");
  fields.field(
      "managedBy", spec.managed_by, {.max_length = rules::kMaxManagedBy},
      "The controller that manages the job. Absent or oarlock.dev/operator: this operator. "
      "kueue.x-k8s.io/multikueue: Kueue, which runs it in another cluster; the operator requests its quota. Jobs "
      "with another value are ignored. The field is immutable.");
}

}  // namespace oarlock::api
