#include "operator/api/types.h"

#include <algorithm>

#include "common/fields/fields.h"
#include "operator/api/rules.h"

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
               "Exit codes of failures.");
  fields.require("operator");
  fields.require("values");
}

void describe_pod_condition(PodConditionMatch& condition, Fields& fields) {
  fields.field("type", condition.type, {.only = rules::kDisruptionTarget},
               "Set when the cluster removes the pod: preemption, drain, taint, eviction.");
  fields.field("status", condition.status, {.only = "True"}, "Value of the condition.");
  fields.require("type");
}

void describe_rule(FailureRule& rule, Fields& fields) {
  fields.choice("action", rule.action,
                {{"Restart", FailureAction::kRestart},
                 {"RestartFree", FailureAction::kRestartFree},
                 {"Fail", FailureAction::kFail},
                 {"Ignore", FailureAction::kIgnore}},
                "Restart restarts the group and counts; RestartFree restarts it and does not count; Fail fails the "
                "job; Ignore treats this pod as done and lets the others continue.");
  fields.require("action");
  fields.section("onExitCodes", rule.on_exit_codes, describe_exit_codes,
                 "Matches the exit code of container 'trainer'.");
  fields.field("onPodReasons", rule.on_pod_reasons,
               {.max_length = rules::kMaxReason,
                .pattern = "^[A-Za-z][A-Za-z0-9]*$",
                .max_items = rules::kMaxRules,
                .list_type = "set",
                .noun = "one CamelCase word such as OOMKilled"},
               "Matches the reason of the pod or of container 'trainer', or the one that status.attempts shows: "
               "OOMKilled, Evicted, PodDeleted, PodLost, or the trainer's own.");
  fields.list("onPodConditions", rule.on_pod_conditions, describe_pod_condition,
              {.max_items = rules::kMaxRules, .list_type = "atomic"}, "Matches a condition of the pod.");
}

void describe_failure_policy(FailurePolicy& policy, Fields& fields) {
  fields.field("maxRestarts", policy.max_restarts, from_to(0, rules::kMaxRestarts),
               "Restarts that count before the job fails. Those after a disruption (preemption, drain) do not count; "
               "exit codes 64 to 78 other than 75 and 76 fail the job immediately. Rules may specify otherwise.");
  fields.field("backoffSeconds", policy.backoff_seconds, from_to(0, rules::kMaxBackoffSeconds),
               "The first restart is immediate. Of consecutive restarts whose attempts lasted less than 10 minutes, "
               "the second is delayed by this time, and each further one by twice the previous delay, up to 5 minutes "
               "or this value if it is longer. 0: no delay.");
  // Without its unknown members, a rule could match failures that it should not match.
  fields.list("rules", policy.rules, describe_rule,
              {.max_items = rules::kMaxRules, .list_type = "atomic", .drops_unknown = true},
              "The effect of a pod's failure, as in podFailurePolicy of a Job: the first rule that matches the pod "
              "applies. Exit code 76 (a peer was lost) is matched only if In names it.");
  fields.choice("restartScope", policy.restart_scope, {{"Group", RestartScope::kGroup}, {"Rank", RestartScope::kRank}},
                "Scope of a restart after a failure. Group: all pods, from the newest checkpoint. Rank: oarlock launch "
                "restarts failed ranks in their pods, and the operator replaces lost pods, while the other "
                "ranks keep their state and no step is lost; if that fails, the group restarts. An attempt recovers at "
                "most maxRestarts times, and each replaced pod counts as a restart. Rank is for "
                "oarlock-trainer and other programs that regroup, and needs the port after rendezvous.port. It "
                "applies to pods that are created afterwards.");
}

void describe_elastic(Elastic& elastic, Fields& fields) {
  fields.field("minNodes", elastic.min_nodes, from_to(1, rules::kMaxNodes), "Smallest number of nodes of the group.");
  fields.field("maxNodes", elastic.max_nodes, from_to(1, rules::kMaxNodes),
               "Largest value of spec.nodes. Default: the limit of spec.nodes.");
  fields.field(
      "shrinkAfterSeconds", elastic.shrink_after_seconds, from_to(1, rules::kMaxSeconds),
      "If pods of the group wait for a node or for quota for this time, the group restarts with the pods that "
      "fit, if they are at least minNodes. The restart does not count against maxRestarts. A pod that gets a node "
      "delays this by up to 30 seconds. With restartScope Rank, a group that has lost pods for this time continues "
      "with the others in place, without a restart, and takes their replacements in later.");
  fields.field("growAfterSeconds", elastic.grow_after_seconds, from_to(0, rules::kMaxSeconds),
               "A group that has run with fewer nodes than spec.nodes for this time restarts with spec.nodes. If the "
               "nodes are still missing after a minute, it shrinks again, and the next attempt waits twice as long, "
               "up to a day or this value if it is longer. 0: it never grows by itself.");
}

void describe_resources(Resources& resources, Fields& fields) {
  fields.raw_object("requests", resources.requests, "Requested quantities by resource, such as cpu and memory.");
  fields.raw_object("limits", resources.limits, "Maximum quantities by resource, such as memory and nvidia.com/gpu.");
}

void describe_checkpoints(Checkpoints& checkpoints, Fields& fields) {
  fields.field("claimName", checkpoints.claim_name, {.min_length = 1, .max_length = rules::kMaxObjectName},
               "An existing PersistentVolumeClaim that all nodes can mount.");
  fields.field("size", checkpoints.size,
               {.min_length = 1,
                .max_length = rules::kMaxQuantity,
                .pattern = R"(^([0-9]+(\.[0-9]*)?|\.[0-9]+)(([KMGTPE]i)|[kMGTPE]|([eE]\+?[0-9]{1,2}))?$)",
                .noun = "a quantity, such as 10Gi"},
               "Size of the PersistentVolumeClaim <job>-checkpoints, which the operator creates with ReadWriteOnce for "
               "one node and ReadWriteMany for several. It survives the job; a new job of this name uses it again and "
               "resumes.");
  fields.field("storageClassName", checkpoints.storage_class_name, {.max_length = rules::kMaxObjectName},
               "StorageClass of that claim. Default: that of the cluster.");
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
               "Pods of the attempt: spec.nodes, or those of the present size of an elastic job.");
  fields.field("scheduled", nodes.scheduled, "Pods that have a node.");
  fields.field("ready", nodes.ready, "Pods that are ready and have not ended.");
  fields.field("succeeded", nodes.succeeded,
               "Pods whose trainer ended with exit code 0, and pods in finishedRanks that were removed since.");
  fields.field("failed", nodes.failed, "Pods that ended in any other way.");
  fields.field("summary", nodes.summary, "Ready pods of those desired, as 1/2.");
}

void describe_finished_ranks(FinishedRanks& finished, Fields& fields) {
  fields.field("attempt", finished.attempt,
               "The attempt of these pods; a record of an earlier attempt has no meaning.");
  fields.field("nodeRanks", finished.node_ranks, "The node ranks, as 0-2,5.");
}

void describe_launcher_bounds(LauncherBounds& bounds, Fields& fields) {
  fields.field("minNodes", bounds.min_nodes, "OARLOCK_MIN_NODES of the attempt's pods.");
  fields.field("shrinkAfterSeconds", bounds.shrink_after_seconds, "OARLOCK_SHRINK_AFTER of the attempt's pods.");
}

void describe_group_size(GroupSize& size, Fields& fields) {
  fields.field("attempt", size.attempt, "The attempt of this size; a record of an earlier attempt has no meaning.");
  fields.field("nodes", size.nodes, "Nodes of the group in this attempt.");
  fields.section("launchers", size.launchers, describe_launcher_bounds,
                 "The bounds with which the launchers of this attempt continue with fewer nodes in place. Absent if "
                 "they do not: without restartScope Rank, or if minNodes is the number of nodes.");
  fields.field("activeNodes", size.active_nodes,
               "Nodes that train, as rank 0 last reported: fewer than nodes while the others continue without a lost "
               "pod. Absent if the launchers do not continue with fewer nodes.");
  fields.field("wanted", size.wanted, "spec.nodes when the operator last considered it.");
  fields.field("lastReason", size.last_reason, "Why the number of nodes last changed: Shrunk, Grown or Scaled.");
  fields.field("lastTime", size.last_time, "When the number of nodes last changed.");
  fields.field("waitingSince", size.waiting_since,
               "Since when pods of the group wait for nodes; elastic.shrinkAfterSeconds counts from here.");
  fields.field("failedGrowths", size.failed_growths,
               "Consecutive growths that did not last; each doubles the time before the next.");
}

void describe_restart_count(RestartCount& count, Fields& fields) {
  fields.field("reason", count.reason,
               "PodFailed, DeviceFailed, OOMKilled, Evicted, Disrupted, PodDeleted, PodLost, PeerLost, Interrupted, or "
               "Shrunk, Grown or Scaled of an elastic job.");
  fields.field("count", count.count, "Number of restarts for this reason.");
  fields.require("reason");
  fields.unknown_members(count.unknown_members);
}

void describe_restarts(Restarts& restarts, Fields& fields) {
  fields.field("total", restarts.total, "All of them.");
  fields.field("charged", restarts.charged, "Those that count against failurePolicy.maxRestarts.");
  fields.list("reasons", restarts.reasons, describe_restart_count, {.list_type = "map", .map_key = "reason"},
              "The total by the reason of the restart.");
}

void describe_recoveries(Recoveries& recoveries, Fields& fields) {
  fields.field("total", recoveries.total, "Number of recoveries, over all attempts.");
  fields.field("seconds", recoveries.seconds,
               "Total duration of the recoveries, from the detection of each loss until training continued.");
  fields.field("attempt", recoveries.attempt, "The attempt of attemptTotal and attemptSeconds.");
  fields.field("attemptTotal", recoveries.attempt_total, "Number of recoveries that rank 0 of this attempt reported.");
  fields.field("attemptSeconds", recoveries.attempt_seconds, "Total duration of those recoveries.");
  fields.field("lastRanks", recoveries.last_ranks, "Ranks that were replaced in the last recovery, as 0,3.");
  fields.field("lastReason", recoveries.last_reason, "Why these ranks were lost.");
  fields.field("lastTime", recoveries.last_time, "When the operator first observed the last recovery.");
  fields.field("pods", recoveries.pods, "Pods that were replaced while the other pods continued.");
  fields.field("charged", recoveries.charged,
               "Replacements of pods that count against failurePolicy.maxRestarts, in addition to restarts.charged.");
}

void describe_in_pod_restarts(InPodRestarts& restarts, Fields& fields) {
  fields.field("total", restarts.total, "Number of these restarts, over all attempts.");
  fields.field("seconds", restarts.seconds,
               "Total duration of these restarts, from the failure of a rank until all processes were started again.");
  fields.field("attempt", restarts.attempt, "The attempt of attemptTotal and attemptSeconds.");
  fields.field("attemptTotal", restarts.attempt_total, "Number of restarts that this attempt reported.");
  fields.field("attemptSeconds", restarts.attempt_seconds, "Total duration of those restarts.");
  fields.field("lastRank", restarts.last_rank, "The rank that failed first before the last restart.");
  fields.field("lastReason", restarts.last_reason, "Why it failed.");
  fields.field("lastTime", restarts.last_time, "When the operator first observed the last restart.");
}

void describe_replacement(Replacement& replacement, Fields& fields) {
  fields.field("nodeRank", replacement.node_rank, "Node rank of the pod.");
  fields.field("attempt", replacement.attempt,
               "The attempt of the pod; a record of an earlier attempt has no meaning.");
  fields.field("podUID", replacement.pod_uid, "UID of the lost pod; absent if it did not exist any more.");
  fields.field("time", replacement.time, "When the replacement was decided.");
  fields.field("reason", replacement.reason, "Machine-readable reason, one word in CamelCase.");
  fields.field("message", replacement.message, "Human-readable message of one line.");
  fields.require("nodeRank");
  fields.unknown_members(replacement.unknown_members);
}

void describe_progress(Progress& progress, Fields& fields) {
  fields.field("step", progress.step, "Optimizer steps done, over all attempts.");
  fields.field("targetSteps", progress.target_steps, "Optimizer steps to do.");
  fields.field("checkpointStep", progress.checkpoint_step, "Step of the newest complete checkpoint.");
  fields.field("completed", progress.completed, "Share of the steps that is done, as 42%.");
  fields.field("loss", progress.loss, "Training loss of the last logged step.");
  fields.field("samplesPerSecond", progress.samples_per_second, "Speed of the whole job.");
  fields.field("eta", progress.eta, "Expected time of the last step, at the duration of the latest one.");
  fields.field("updatedAt", progress.updated_at, "When rank 0 reported this.");
  fields.field("lastStepTime", progress.last_step_time,
               "When the operator, by its own clock, last observed a change of the step or the start of the attempt; "
               "stallPolicy.timeoutSeconds counts from here.");
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
  fields.field("exitCode", record.exit_code, "Exit code of its trainer container.");
  fields.unknown_members(record.unknown_members);
}

}  // namespace

// ---- descriptions --------------------------------------------------------------------------------------------------

void describe(Metadata& metadata, Fields& fields) {
  fields.field("name", metadata.name, "Name of the job.");
  fields.field("namespace", metadata.name_space, "Namespace of the job.");
  fields.field("uid", metadata.uid, "UID of the object.");
  fields.field("resourceVersion", metadata.resource_version, "Version of the object.");
  fields.field("generation", metadata.generation, "Number of changes of the spec.");
  fields.field("creationTimestamp", metadata.creation_timestamp, "When the object was created.");
  fields.field("deletionTimestamp", metadata.deletion_timestamp, "When the deletion was requested.");
}

void describe(Spec& spec, Fields& fields) {
  fields.field(
      "nodes", spec.nodes, from_to(1, rules::kMaxNodes),
      "Pods in the group. Each receives its rank as NODE_RANK. It may change while an elastic job runs, also with "
      "kubectl scale: the group then restarts with the new number, which does not count as a restart.");
  fields.section("elastic", spec.elastic, describe_elastic,
                 "The group may run with another number of nodes than spec.nodes: with fewer while the cluster lacks "
                 "capacity. It restarts from the newest checkpoint each time, unless the launchers continue with the "
                 "nodes that are left (failurePolicy.restartScope Rank).");
  fields.number_or_name("processesPerNode", spec.processes_per_node, spec.processes_from, kAuto,
                        from_to(1, rules::kMaxProcessesPerNode),
                        "Ranks in each pod: a number, or auto for one on each GPU in the limits of container "
                        "'trainer', and one without GPUs. Default: auto if resourcesPerNode is set, otherwise 1. With "
                        "more than one, the container must run a launcher (oarlock launch, torchrun) that starts them "
                        "and gives each its RANK and LOCAL_RANK.");
  fields.field("image", spec.image, {.min_length = 1, .max_length = rules::kMaxImage},
               "Image of container 'trainer'. Default: the trainer's image of the operator's version, or as its flag "
               "--trainer-image specifies.");
  fields.section("resourcesPerNode", spec.resources_per_node, describe_resources,
                 "Resources of container 'trainer' in each pod. Set GPUs in limits.");
  fields.section("checkpoints", spec.checkpoints, describe_checkpoints,
                 "Where checkpoints are kept, in the volume 'checkpoints' at /checkpoints. Without it, and without "
                 "such a volume in the template, they are in an emptyDir, and training begins from step 0 after each "
                 "restart.");
  fields.raw_object(
      "template", spec.pod_template,
      "The pods, as a PodTemplateSpec. It is merged into the pod that the operator builds, containers "
      "and volumes by name. If its container 'trainer' has an image, it is complete and passed verbatim, "
      "with resourcesPerNode and checkpoints added. All containers receive the environment of their rank.");
  fields.raw_object("trainer", spec.trainer,
                    "Configuration of oarlock-trainer, which is passed verbatim. The container 'trainer' finds it in "
                    "the file that OARLOCK_CONFIG names. Each pod has a copy as an annotation: at most 256 KiB, and "
                    "with the template at most 256 MiB for all nodes together.");
  fields.section(
      "failurePolicy", [&](Fields& policy) { describe_failure_policy(spec.failure_policy, policy); },
      "The reaction to the failure of a rank.");
  fields.section(
      "stallPolicy",
      [&](Fields& policy) {
        policy.field("timeoutSeconds", spec.stall_policy.timeout_seconds, from_to(1, rules::kMaxSeconds),
                     "A running job whose rank 0 has not done an optimizer step for this time is Stalled until the "
                     "next step. Set it above the duration of the longest evaluation or checkpoint. It may change "
                     "while the job runs. Jobs whose rank 0 reports no progress are never Stalled.");
      },
      "When a running job without progress is Stalled.");
  fields.choice("successPolicy", spec.success_policy,
                {{"AllRanks", SuccessPolicy::kAllRanks}, {"Rank0", SuccessPolicy::kRank0}},
                "The job is Complete when the trainers of all pods ended with exit code 0 (AllRanks), or as soon as "
                "that of node rank 0 did (Rank0).");
  fields.choice(
      "cleanPodPolicy", spec.clean_pod_policy,
      {{"Running", CleanPodPolicy::kRunning}, {"All", CleanPodPolicy::kAll}, {"None", CleanPodPolicy::kNone}},
      "Pods that are deleted when the job has ended: those that still run, all of them with their logs, or none. "
      "The Service is deleted, too, except with None.");
  fields.field("activeDeadlineSeconds", spec.active_deadline_seconds, from_to(1, rules::kMaxSeconds),
               "A job that is active for longer fails with reason DeadlineExceeded. The time starts with the first "
               "start, and again with each resume. It may change while the job runs.");
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
               "Stops the pods and creates none until it is false again; then the group restarts from its "
               "checkpoint. A resume does not count as a restart. The fields that shape the ranks may change while "
               "the job is suspended.");
  fields.field("managedBy", spec.managed_by, {.max_length = rules::kMaxManagedBy},
               "The controller of the job: oarlock.dev/operator or absent for this one, which ignores jobs with "
               "another value, such as kueue.x-k8s.io/multikueue. It cannot change.");
}

void describe(Status& status, Fields& fields) {
  fields.choice("phase", status.phase, kPhases,
                "Pending, Running, Stalled, Restarting, Suspended, Complete or Failed; the condition of that type is "
                "true.");
  fields.list("conditions", status.conditions, describe_condition, {.list_type = "map", .map_key = "type"},
              "One for each phase that the job has been in, of which exactly one is true. Conditions of other "
              "controllers are kept.");
  fields.field("observedGeneration", status.observed_generation,
               "metadata.generation of the spec to which this status refers.");
  fields.field("worldSize", status.world_size, "Ranks in the group.");
  fields.field("attempt", status.attempt,
               "Number of the current attempt, from 0; each restart and each resume starts a new one.");
  fields.section("nodes", [&](Fields& nodes) { describe_nodes(status.nodes, nodes); }, "Pods of the current attempt.");
  fields.section("elastic", status.elastic, describe_group_size, "The size of an elastic job's group.");
  fields.section("finishedRanks", status.finished_ranks, describe_finished_ranks,
                 "Node ranks whose pods are done. They stay done when their pods are removed.");
  fields.section(
      "restarts", [&](Fields& restarts) { describe_restarts(status.restarts, restarts); },
      "Restarts of the whole group.");
  fields.section("recoveries", status.recoveries, describe_recoveries,
                 "Recoveries from the loss of ranks without a restart of the group, if failurePolicy.restartScope is "
                 "Rank. No step is lost in them.");
  fields.section("inPodRestarts", status.in_pod_restarts, describe_in_pod_restarts,
                 "Restarts of all processes in their pods, by oarlock launch --max-restarts. They do not count in "
                 "restarts.");
  fields.list("replacements", status.replacements, describe_replacement, {.list_type = "map", .map_key = "nodeRank"},
              "Lost pods whose replacements have not started yet, while the other pods of the attempt continue.");
  fields.section("progress", status.progress, describe_progress,
                 "The last report of rank 0, if the image is oarlock-trainer.");
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
         type == kConditionCheckpointsNotKept;
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
