#include "api/types.h"

#include <algorithm>
#include <array>

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
               "PodFailed, DeviceFailed, PreflightFailed, OOMKilled, Evicted, Disrupted, PodRejected, PodDeleted, "
               "PodLost, PeerLost, "
               "Interrupted, NotStarted, Stalled, or for an elastic job Shrunk, Grown or Scaled.");
  fields.field("count", count.count, "Number of restarts for this reason.");
  fields.require("reason");
  fields.unknown_members(count.unknown_members);
}

void describe_after_progress(AfterProgress& after, Fields& fields) {
  fields.field(
      "count", after.count,
      "Number of restarts and replaced pods after progress, which count against failurePolicy.maxTotalRestarts "
      "only.");
  fields.field(
      "step", after.step,
      "Highest step of the job at its last failure; absent if none was reported. A later failure follows progress "
      "if status.highestProgress has a higher step, or a newer checkpoint.");
  fields.field("checkpointStep", after.checkpoint_step, "Step of the newest checkpoint at its last failure.");
  fields.field("failures", after.failures,
               "Number of failures of the group since the last progress, if it reports steps.");
}

void describe_restarts(Restarts& restarts, Fields& fields) {
  fields.field("total", restarts.total, "Number of all restarts.");
  fields.field("charged", restarts.charged, "Number of restarts that count against failurePolicy.maxRestarts.");
  fields.list("reasons", restarts.reasons, describe_restart_count, {.list_type = "map", .map_key = "reason"},
              "Number of restarts by reason.");
  fields.section(
      "afterProgress", restarts.after_progress, describe_after_progress,
      "Failures after progress: those before which the job had reached a higher step, or a newer checkpoint, "
      "than before all earlier failures.");
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

void describe_profile(AppliedProfile& profile, Fields& fields) {
  fields.field("name", profile.name, "Name of the profile.");
  fields.field("namespace", profile.namespace_name, "Its namespace: that of the job, or that of the operator.");
  fields.field("uid", profile.uid, "UID of the profile.");
  fields.field("generation", profile.generation, "metadata.generation of the profile at that time.");
  fields.field("spec", profile.spec, "The spec of the profile at that time, as JSON.");
}

void describe_queue(QueueStatus& queue, Fields& fields) {
  fields.field("name", queue.name, "Name of the LocalQueue.");
  fields.field("workload", queue.workload,
               "The Workload that MultiKueue has created for the job, which its annotation names.");
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

void describe_bad_node(BadNode& node, Fields& fields) {
  fields.field("name", node.name, "Name of the node.");
  fields.field(
      "failures", node.failures,
      "Number of failures of the job on this node that had no other cause. A failure of the hardware counts as "
      "failurePolicy.avoidNodesAfter of them.");
  fields.field("lastTime", node.last_time, "When the last of them was detected.");
  fields.field("reason", node.reason, "Reason of the last of them, one word in CamelCase.");
  fields.choice("avoidance", node.avoidance,
                {{"None", NodeAvoidance::kNone},
                 {"Preferred", NodeAvoidance::kPreferred},
                 {"Required", NodeAvoidance::kRequired}},
                "Required: pods that are created now run on other nodes. Preferred: they do as far as there is room. "
                "None: the node is not avoided, because pods were not placed in time otherwise.");
  fields.require("name");
  fields.unknown_members(node.unknown_members);
}

void describe_disruption(Disruption& disruption, Fields& fields) {
  fields.field("nodes", disruption.nodes, "Names of these nodes, at most 16.");
  fields.field("reason", disruption.reason,
               "Name of the node because of which the last request was made, and its taint or condition.");
  fields.field("requestTime", disruption.request_time, "When a checkpoint was last requested.");
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

void describe_highest_progress(HighestProgress& reached, Fields& fields) {
  fields.field("step", reached.step, "Highest step that rank 0 has reported.");
  fields.field("checkpointStep", reached.checkpoint_step, "Step of the newest checkpoint that it has reported.");
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

void describe_startup(Startup& startup, Fields& fields) {
  fields.field("attempt", startup.attempt, "Number of the attempt.");
  fields.field("scheduled", startup.scheduled, "Seconds until all pods had nodes.");
  fields.field("started", startup.started, "Seconds until all trainer containers had started.");
  fields.field("firstReport", startup.first_report, "Seconds until rank 0 first reported its progress.");
  fields.field("firstStep", startup.first_step,
               "Seconds until rank 0 reported a higher step than in its first report.");
  fields.field("step", startup.step, "Step of the first report.");
}

constexpr std::array<UsageClass, kUsageClasses.size()> all_usage_classes() {
  std::array<UsageClass, kUsageClasses.size()> out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<UsageClass>(i);
  return out;
}
constexpr auto kAllUsageClasses = all_usage_classes();

// Indexed by UsageClass.
constexpr std::array<std::string_view, kUsageClasses.size()> kUsageHelp = {
    "Pods with a node waited for others without one.",
    "Images were pulled, and containers created.",
    "Programs ran, and had not reported yet.",
    "Ranks connected to each other.",
    "A checkpoint was loaded.",
    "New steps.",
    "Steps that an earlier process had done.",
    "Training waited for a checkpoint to be saved.",
    "Evaluation.",
    "The phase was Stalled.",
    "Lost to a failure or a stop: from the last report of an attempt until all pods of the next one had started.",
    "Programs ran that reported no steps.",
    "The container had ended, or the job, and the pod still had its node."};

// Classes without time are not written.
void describe_times(UsageMilliseconds& times, std::span<const UsageClass> classes, Fields& fields) {
  for (const UsageClass one : classes) {
    std::optional<int64_t> time = times[one] == 0 ? std::nullopt : std::optional(times[one]);
    fields.field(name_of(one), time, kUsageHelp[static_cast<size_t>(one)]);
    times[one] = time.value_or(0);
  }
}

void describe_usage(Usage& usage, Fields& fields) {
  fields.field("acceleratorsPerPod", usage.accelerators_per_pod,
               "Accelerators of a pod: its GPUs, otherwise the largest number of any extended resource, otherwise "
               "spec.processesPerNode.");
  fields.field("allocated", usage.allocated,
               "Milliseconds for which pods have had a node, times their accelerators; the sum of `classes`.");
  fields.field("queued", usage.queued,
               "Milliseconds for which requested pods had no node while the job was waiting to start, times their "
               "accelerators.");
  fields.section(
      "classes", [&](Fields& classes) { describe_times(usage.classes, kAllUsageClasses, classes); },
      "The allocated accelerator-milliseconds by what the job did (docs/guides/goodput.md).");
  fields.field("until", usage.until, "Unix time in milliseconds until which the time is divided into classes.");
  fields.field("pods", usage.pods, "Number of pods that had a node at that time.");
  fields.field("attempt", usage.attempt, "Attempt to which `step` and `reported` refer.");
  fields.field("step", usage.step, "Step that rank 0 of this attempt last reported.");
  fields.field("highestStep", usage.highest_step, "Highest step of all attempts. Steps up to it are recomputed.");
  fields.section(
      "reported", usage.reported,
      [](UsageMilliseconds& times, Fields& inner) { describe_times(times, kReportedUsageClasses, inner); },
      "Milliseconds by class that rank 0 of this attempt, or its launcher, last reported.");
}

// What has failed, and how the job continued.
void describe_failures(Status& status, Fields& fields) {
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
  fields.list("badNodes", status.bad_nodes, describe_bad_node,
              {.max_items = kMaxBadNodes, .list_type = "map", .map_key = "name"},
              "Nodes on which the job has failed within failurePolicy.avoidNodesSeconds, in the order of their last "
              "failures: the newest 16.");
  fields.section(
      "disruption", status.disruption, describe_disruption,
      "Nodes with pods of the job that are about to be drained or removed, while it runs: it is requested to save a "
      "checkpoint (docs/operator-states.md).");
}

}  // namespace

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
  describe_failures(status, fields);
  fields.section(
      "launcher", status.launcher, describe_launcher,
      "The launcher that the operator has put into the pods. Absent if the image contains it, or the job was "
      "started without an operator that has one.");
  fields.section(
      "queue", status.queue, describe_queue,
      "The queue of Kueue that admits the job. Absent if the job had no label kueue.x-k8s.io/queue-name when "
      "it was started, or resumed for the last time.");
  fields.section("profile", status.profile, describe_profile,
                 "The TrainingProfile that is merged into the spec, as it was when the job started or was resumed for "
                 "the last time. Absent if there was none.");
  fields.section("progress", status.progress, describe_progress,
                 "The last progress report of rank 0, if its program reports it (docs/guides/progress.md).");
  fields.section(
      "highestProgress", status.highest_progress, describe_highest_progress,
      "How far the job has come since it was started, or resumed for the last time. In `progress`, processes "
      "that start again begin at an earlier step.");
  fields.field("startTime", status.start_time, "When pods were first created.");
  fields.field("attemptStartTime", status.attempt_start_time,
               "When the pods of the current attempt were first created.");
  fields.field("completionTime", status.completion_time, "When the job became Complete or Failed.");
  fields.list("attempts", status.attempts, describe_attempt, {.max_items = kMaxAttemptRecords, .list_type = "atomic"},
              "Records of the last ten attempts that ended, oldest first.");
  fields.section("startup", status.startup, describe_startup,
                 "The start of the current attempt, in seconds since its pods were created.");
  fields.section("usage", status.usage, describe_usage,
                 "What the accelerators of the job have done since its creation.");
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
