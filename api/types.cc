#include "api/types.h"

#include <algorithm>

#include "api/rules.h"
#include "fields/fields.h"

namespace oarlock::api {
namespace {

template <typename Enum>
using Name = std::pair<std::string_view, Enum>;

constexpr Name<Phase> kPhases[] = {{"Pending", Phase::kPending},     {"Running", Phase::kRunning},
                                   {"Stalled", Phase::kStalled},     {"Restarting", Phase::kRestarting},
                                   {"Suspended", Phase::kSuspended}, {"Complete", Phase::kComplete},
                                   {"Failed", Phase::kFailed}};

// ---- spec ----------------------------------------------------------------------------------------------------------

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
  fields.field("maxRestarts", policy.max_restarts, from_to(0, rules::kMaxRestarts),
               "Maximum number of restarts; the next failure fails the job. Restarts after a disruption (preemption, "
               "drain) do not count. Exit codes 64 to 78 other than 75 and 76 fail the job immediately. "
               "failurePolicy.rules take precedence.");
  fields.field("backoffSeconds", policy.backoff_seconds, from_to(0, rules::kMaxBackoffSeconds),
               "Delay of the second of consecutive restarts whose attempts lasted less than 10 minutes. The first "
               "restart is immediate, and each further one has twice the previous delay, up to 5 minutes or this value "
               "if it is longer. 0: no delay.");
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

// ---- status --------------------------------------------------------------------------------------------------------

void describe_condition(Condition& condition, Fields& fields) {
  fields.field("type", condition.type, "Name of a phase, or of another controller's condition.");
  if (!condition.type.empty() && !is_own_condition(condition.type)) return fields.unknown_members(condition.verbatim);
  fields.choice("status", condition.status, {{"True", true}, {"False", false}, {"Unknown", false}}, "True or False.");
  fields.field("reason", condition.reason, "Machine-readable reason, one word in CamelCase.");
  fields.field("message", condition.message, "Human-readable message of one line.");
  fields.field("lastTransitionTime", condition.last_transition_time, "When status last changed.");
  fields.require("type");
  fields.require("status");
  fields.unknown_members(condition.unknown_members);
}

void describe_nodes(NodeCounts& nodes, Fields& fields) {
  fields.field("desired", nodes.desired,
               "Number of pods of the attempt: spec.nodes, or the current size of an elastic job.");
  fields.field("scheduled", nodes.scheduled, "Pods that have a node.");
  fields.field("ready", nodes.ready, "Pods that are ready and have not ended.");
  fields.field("succeeded", nodes.succeeded,
               "Pods whose trainer ended with exit code 0, and pods of finishedRanks that have been removed since.");
  fields.field("failed", nodes.failed, "Pods that ended in any other way.");
  fields.field("summary", nodes.summary, "Ready and desired pods, such as 1/2.");
}

void describe_finished_ranks(FinishedRanks& finished, Fields& fields) {
  fields.field("attempt", finished.attempt, "Attempt of these pods; the record of an earlier attempt is ignored.");
  fields.field("nodeRanks", finished.node_ranks, "The node ranks, such as 0-2,5.");
}

void describe_launcher_bounds(LauncherBounds& bounds, Fields& fields) {
  fields.field("minNodes", bounds.min_nodes, "OARLOCK_MIN_NODES of the attempt's pods.");
  fields.field("shrinkAfterSeconds", bounds.shrink_after_seconds, "OARLOCK_SHRINK_AFTER of the attempt's pods.");
}

void describe_group_size(GroupSize& size, Fields& fields) {
  fields.field("attempt", size.attempt, "Attempt of this size; the record of an earlier attempt is ignored.");
  fields.field("nodes", size.nodes, "Nodes of the group in this attempt.");
  fields.section("launchers", size.launchers, describe_launcher_bounds,
                 "The limits with which the launchers of this attempt continue in place with fewer nodes. Absent if "
                 "they cannot: without restartScope Rank, or if minNodes equals the number of nodes.");
  fields.field("activeNodes", size.active_nodes,
               "Nodes that train, as rank 0 last reported: fewer than nodes while the others continue without a lost "
               "pod. Absent if the launchers do not continue with fewer nodes.");
  fields.field("wanted", size.wanted, "Value of spec.nodes that the operator last processed.");
  fields.field("lastReason", size.last_reason, "Why the number of nodes last changed: Shrunk, Grown or Scaled.");
  fields.field("lastTime", size.last_time, "When the number of nodes last changed.");
  fields.field("waitingSince", size.waiting_since,
               "When pods of the group began to wait for nodes; elastic.shrinkAfterSeconds counts from this time.");
  fields.field("failedGrowths", size.failed_growths,
               "Number of consecutive growths that did not last; each doubles the time before the next growth.");
}

void describe_restart_count(RestartCount& count, Fields& fields) {
  fields.field("reason", count.reason,
               "PodFailed, DeviceFailed, OOMKilled, Evicted, Disrupted, PodRejected, PodDeleted, PodLost, PeerLost, "
               "Interrupted, NotStarted, Stalled, or for an elastic job Shrunk, Grown or Scaled.");
  fields.field("count", count.count, "Number of restarts for this reason.");
  fields.require("reason");
  fields.unknown_members(count.unknown_members);
}

void describe_restarts(Restarts& restarts, Fields& fields) {
  fields.field("total", restarts.total, "Number of all restarts.");
  fields.field("charged", restarts.charged, "Number of restarts that count against failurePolicy.maxRestarts.");
  fields.list("reasons", restarts.reasons, describe_restart_count, {.list_type = "map", .map_key = "reason"},
              "Number of restarts by reason.");
}

void describe_recoveries(Recoveries& recoveries, Fields& fields) {
  fields.field("total", recoveries.total, "Number of recoveries, over all attempts.");
  fields.field(
      "seconds", recoveries.seconds,
      "Total duration of the recoveries in seconds, from the detection of each loss until training continued.");
  fields.field("attempt", recoveries.attempt, "Attempt to which attemptTotal and attemptSeconds refer.");
  fields.field("attemptTotal", recoveries.attempt_total, "Number of recoveries that rank 0 of this attempt reported.");
  fields.field("attemptSeconds", recoveries.attempt_seconds, "Total duration of those recoveries in seconds.");
  fields.field("lastRanks", recoveries.last_ranks, "Ranks that were replaced in the last recovery, such as 0,3.");
  fields.field("lastReason", recoveries.last_reason, "Why these ranks were lost.");
  fields.field("lastTime", recoveries.last_time, "When the operator first observed the last recovery.");
  fields.field("pods", recoveries.pods, "Number of pods that were replaced while the other pods continued.");
  fields.field(
      "charged", recoveries.charged,
      "Number of replaced pods that count against failurePolicy.maxRestarts, in addition to restarts.charged.");
}

void describe_in_pod_restarts(InPodRestarts& restarts, Fields& fields) {
  fields.field("total", restarts.total, "Number of these restarts, over all attempts.");
  fields.field("seconds", restarts.seconds,
               "Total duration of these restarts in seconds, from the failure of a rank until all processes were "
               "started again.");
  fields.field("attempt", restarts.attempt, "Attempt to which attemptTotal and attemptSeconds refer.");
  fields.field("attemptTotal", restarts.attempt_total, "Number of restarts that this attempt reported.");
  fields.field("attemptSeconds", restarts.attempt_seconds, "Total duration of those restarts in seconds.");
  fields.field("lastRank", restarts.last_rank, "The rank that failed first before the last restart.");
  fields.field("lastReason", restarts.last_reason, "Why it failed.");
  fields.field("lastTime", restarts.last_time, "When the operator first observed the last restart.");
}

void describe_launcher(InjectedLauncher& launcher, Fields& fields) {
  fields.field("image", launcher.image, "Image from which the pods copy the launcher. Absent if they have none.");
  fields.field(
      "reason", launcher.reason,
      "Why the pods have no launcher: NoCommand, NameTaken (the template uses its names or paths), SeveralRanks or "
      "Never.");
}

void describe_queue(QueueStatus& queue, Fields& fields) {
  fields.field("name", queue.name, "Name of the LocalQueue.");
  fields.field("clusterQueue", queue.cluster_queue,
               "The ClusterQueue that has admitted the job; absent while it waits.");
  fields.field("flavors", queue.flavors, "The ResourceFlavors that the admission assigns to the pods.");
  fields.field("nodes", queue.nodes, "The number of nodes for which the admission assigns quota.");
  fields.field("since", queue.since, "Since when the job waits, or is admitted.");
}

void describe_replacement(Replacement& replacement, Fields& fields) {
  fields.field("nodeRank", replacement.node_rank, "Node rank of the pod.");
  fields.field("attempt", replacement.attempt, "Attempt of the pod; the record of an earlier attempt is ignored.");
  fields.field("podUID", replacement.pod_uid, "UID of the lost pod; absent if the pod no longer existed.");
  fields.field("time", replacement.time, "When the operator decided to replace the pod.");
  fields.field("reason", replacement.reason, "Machine-readable reason, one word in CamelCase.");
  fields.field("message", replacement.message, "Human-readable message of one line.");
  fields.require("nodeRank");
  fields.unknown_members(replacement.unknown_members);
}

void describe_progress(Progress& progress, Fields& fields) {
  fields.field("step", progress.step, "Number of optimizer steps done, over all attempts.");
  fields.field("targetSteps", progress.target_steps, "Number of optimizer steps of the whole run.");
  fields.field("checkpointStep", progress.checkpoint_step, "Step of the newest complete checkpoint.");
  fields.field("completed", progress.completed, "Share of the steps that is done, such as 42%.");
  fields.field("loss", progress.loss, "Training loss of the last logged step.");
  fields.field("samplesPerSecond", progress.samples_per_second, "Throughput of the whole job in samples per second.");
  fields.field("eta", progress.eta,
               "Estimated time of the last step, if the remaining steps take as long as the latest one.");
  fields.field("updatedAt", progress.updated_at, "When rank 0 reported this.");
  fields.field("lastStepTime", progress.last_step_time,
               "When the operator, by its own clock, last observed a change of the step, or the first step of the "
               "attempt; absent before it. stallPolicy.timeoutSeconds counts from this time.");
}

void describe_attempt(AttemptRecord& record, Fields& fields) {
  fields.field("attempt", record.attempt, "Number of the attempt.");
  fields.field("startTime", record.start_time, "When its pods were first created.");
  fields.field("endTime", record.end_time, "When its failure was detected.");
  fields.field("reason", record.reason, "Machine-readable reason, one word in CamelCase.");
  fields.field("message", record.message, "Human-readable message of one line.");
  fields.field("pod", record.pod, "The pod that caused the failure; absent if it is not known.");
  fields.field("node", record.node, "The node of that pod.");
  fields.field("nodeRank", record.node_rank, "Node rank of that pod.");
  fields.field("rank", record.rank, "Rank that failed first in that pod; absent without a termination message.");
  fields.field("exitCode", record.exit_code, "Exit code of its trainer container, or of `container`.");
  fields.field("container", record.container, "The init container that failed; absent if none did.");
  fields.field("step", record.step, "The last known step of the attempt; absent if rank 0 reported none.");
  fields.field(
      "stepsLost", record.steps_lost,
      "Steps after the newest known checkpoint, which the next attempt repeats; absent without a checkpoint, and "
      "if the pods could still save one when the attempt ended.");
  fields.field(
      "secondsLost", record.seconds_lost,
      "Seconds from endTime until a later attempt exceeded `step`, or without a step until its pods had started.");
  fields.field("stopped", record.stopped,
               "true if the attempt was stopped and did not crash: the pods of the next one wait until its pods have "
               "saved a checkpoint, within their grace period.");
  fields.unknown_members(record.unknown_members);
}

}  // namespace

// ---- descriptions --------------------------------------------------------------------------------------------------

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
}

void describe(Spec& spec, Fields& fields) {
  fields.field("nodes", spec.nodes, from_to(1, rules::kMaxNodes),
               "Number of pods in the group. Each pod receives its node rank as NODE_RANK. In an elastic job, the "
               "number can be changed while the job runs, also with kubectl scale: the group then restarts with the "
               "new number, and the restart does not count against maxRestarts.");
  fields.section("elastic", spec.elastic, describe_elastic,
                 "Allows the group to run with fewer nodes than spec.nodes while the cluster lacks capacity. The group "
                 "restarts from the newest checkpoint each time its size changes, unless the launchers continue with "
                 "the remaining nodes (failurePolicy.restartScope Rank).");
  fields.number_or_name(
      "processesPerNode", spec.processes_per_node, spec.processes_from, kAuto, from_to(1, rules::kMaxProcessesPerNode),
      "Number of ranks in each pod. auto: one rank for each GPU in the limits of container 'trainer', or one rank if "
      "there are no GPUs. Default: auto if resourcesPerNode is set, otherwise 1. More than one rank needs a launcher "
      "(that of spec.launcher, oarlock launch, torchrun), which starts the ranks and sets their RANK and LOCAL_RANK.");
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
  fields.section(
      "failurePolicy", [&](Fields& policy) { describe_failure_policy(spec.failure_policy, policy); },
      "How the failure of a rank is handled.");
  fields.section(
      "stallPolicy",
      [&](Fields& policy) {
        policy.field("timeoutSeconds", spec.stall_policy.timeout_seconds, from_to(1, rules::kMaxSeconds),
                     "A running job whose rank 0 has not completed an optimizer step for this time is Stalled until "
                     "the next step. Set it above the duration of the longest evaluation or checkpoint. It can be "
                     "changed while the job runs. Jobs whose rank 0 never reports its progress are never Stalled.");
        policy.field("startTimeoutSeconds", spec.stall_policy.start_timeout_seconds, from_to(1, rules::kMaxSeconds),
                     "A job that has reported steps is Stalled, too, if it reports none for this time after a restart: "
                     "of its pods, or of the processes in them. It can be changed while the job runs.");
        policy.choice("action", spec.stall_policy.action,
                      {{"None", StallAction::kNone}, {"Restart", StallAction::kRestart}},
                      "None: the job is Stalled until the next step. Restart: the group restarts, which counts against "
                      "failurePolicy.maxRestarts; if rank 0 does not respond, after timeoutSeconds once more. Set "
                      "startTimeoutSeconds above the time of a restart until its first step, and timeoutSeconds above "
                      "that of oarlock-trainer. It can be changed while the job runs.");
      },
      "When a running job that makes no progress becomes Stalled, and what follows.");
  fields.section(
      "scheduling",
      [&](Fields& scheduling) {
        scheduling.field("pendingTimeoutSeconds", spec.scheduling.pending_timeout_seconds,
                         from_to(1, rules::kMaxSeconds),
                         "If the pods of the group have not all been placed on nodes for this time, because of a lack "
                         "of nodes or quota, those that were are deleted, so that other jobs can use their room. "
                         "Default: the operator's flag --pending-timeout, otherwise never. It can be changed while the "
                         "job runs.");
        scheduling.choice("pendingAction", spec.scheduling.pending_action,
                          {{"Retry", PendingAction::kRetry}, {"Fail", PendingAction::kFail}},
                          "What follows after pendingTimeoutSeconds. Retry: all pods are created again after a delay "
                          "that grows with the waiting time, up to 20 minutes, which does not count against "
                          "failurePolicy.maxRestarts. Fail: the job fails.");
      },
      "The placement of the pods on nodes.");
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
  fields.field("managedBy", spec.managed_by, {.max_length = rules::kMaxManagedBy},
               "The controller that manages the job. Absent or oarlock.dev/operator: this operator, which ignores jobs "
               "with another value, such as kueue.x-k8s.io/multikueue. The field is immutable.");
}

void describe(Status& status, Fields& fields) {
  fields.choice("phase", status.phase, kPhases,
                "Pending, Running, Stalled, Restarting, Suspended, Complete or Failed; the condition of that type is "
                "true.");
  fields.list("conditions", status.conditions, describe_condition, {.list_type = "map", .map_key = "type"},
              "One condition for each phase that the job has been in; exactly one of them is true. Conditions of other "
              "controllers are kept.");
  fields.field("observedGeneration", status.observed_generation,
               "metadata.generation of the spec to which this status refers.");
  fields.field("worldSize", status.world_size, "Number of ranks in the group.");
  fields.field("attempt", status.attempt,
               "Number of the current attempt, from 0; each restart and each resume starts a new one.");
  fields.section("nodes", [&](Fields& nodes) { describe_nodes(status.nodes, nodes); }, "Pods of the current attempt.");
  fields.section("elastic", status.elastic, describe_group_size, "The size of an elastic job's group.");
  fields.section("finishedRanks", status.finished_ranks, describe_finished_ranks,
                 "Node ranks that have finished. They remain finished when their pods are removed.");
  fields.section(
      "restarts", [&](Fields& restarts) { describe_restarts(status.restarts, restarts); },
      "Restarts of the whole group.");
  fields.section("recoveries", status.recoveries, describe_recoveries,
                 "Recoveries from the loss of ranks without a restart of the group, if failurePolicy.restartScope is "
                 "Rank. No step is lost in them.");
  fields.section("inPodRestarts", status.in_pod_restarts, describe_in_pod_restarts,
                 "Restarts of all processes in their pods, by oarlock launch --max-restarts. They are not included in "
                 "status.restarts.");
  fields.list("replacements", status.replacements, describe_replacement, {.list_type = "map", .map_key = "nodeRank"},
              "Lost pods whose replacements have not started yet, while the other pods of the attempt continue.");
  fields.section(
      "launcher", status.launcher, describe_launcher,
      "The launcher that the operator has put into the pods. Absent if the image contains it, or the job was "
      "started without an operator that has one.");
  fields.section(
      "queue", status.queue, describe_queue,
      "The queue of Kueue that admits the job. Absent if the job had no label kueue.x-k8s.io/queue-name when "
      "it was started, or resumed for the last time.");
  fields.section("progress", status.progress, describe_progress,
                 "The last progress report of rank 0, if its program reports it (docs/guides/progress.md).");
  fields.field("startTime", status.start_time, "When pods were first created.");
  fields.field("attemptStartTime", status.attempt_start_time,
               "When the pods of the current attempt were first created.");
  fields.field("completionTime", status.completion_time, "When the job became Complete or Failed.");
  fields.list("attempts", status.attempts, describe_attempt, {.max_items = kMaxAttemptRecords, .list_type = "atomic"},
              "Records of the last ten attempts that ended, oldest first.");
}

int TrainingJob::group_nodes() const {
  const bool is_recorded = spec.elastic && status.elastic && status.elastic->attempt == status.attempt &&
                           status.elastic->nodes >= 1 && status.elastic->nodes <= rules::kMaxNodes;
  return is_recorded ? status.elastic->nodes : spec.nodes;
}

// ---- phases --------------------------------------------------------------------------------------------------------

std::span<const std::pair<std::string_view, Phase>> phase_names() { return kPhases; }

bool is_own_condition(std::string_view type) {
  return is_phase_name(type) || type == kConditionUnreadable || type == kConditionUnknownFields ||
         type == kConditionCheckpointsNotKept || type == kConditionPodsUnlabeled;
}

bool is_phase_name(std::string_view name) {
  return std::ranges::any_of(kPhases, [&](const auto& phase) { return phase.first == name; });
}

std::string to_string(Phase phase) {
  for (const auto& [name, candidate] : kPhases) {
    if (candidate == phase) return std::string(name);
  }
  return "";
}

}  // namespace oarlock::api
