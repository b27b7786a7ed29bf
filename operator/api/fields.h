// Lists every field of a TrainingJob with its JSON name in a single place. The JSON reader and writer (codec.cc), the
// YAML reader (validate.cc) and the comparison with the CRD (a unit test) are visitors of these functions. To add a
// field, add it here, in types.h and in manifests/crd. A visitor has these members:
//   field(key, value)              a bool, integer, number, string or time, an optional of these, or a list of strings
//                                  or int64
//   choice(key, value, names)      an enumeration
//   condition_status(key, bool&)   "True" or "False"
//   count_or_auto(key, count, from) an integer or "auto"; `from` is set to the form, or to kAbsent
//   verbatim(text)                 the current object as JSON text, with all of its members
//   raw_object(key, text)          an object that is kept as JSON text
//   group(key, fn(Visitor&))       a nested object
//   group(key, optional, fn(Visitor&, value))
//   list(key, vector, fn(Visitor&, item))
//   unknown_members(text)          the members that were not visited, as JSON text. A patch replaces items of a list as
//   a
//                                  whole, so the text preserves the members that a newer version wrote.
#pragma once

#include "operator/api/types.h"

namespace oarlock::api::fields {

template <typename Visitor>
void metadata(Visitor& v, Metadata& metadata) {
  v.field("name", metadata.name);
  v.field("namespace", metadata.name_space);
  v.field("uid", metadata.uid);
  v.field("resourceVersion", metadata.resource_version);
  v.field("generation", metadata.generation);
  v.field("creationTimestamp", metadata.creation_timestamp);
  v.field("deletionTimestamp", metadata.deletion_timestamp);
}

template <typename Visitor>
void failure_rule(Visitor& v, FailureRule& rule) {
  v.choice("action", rule.action, failure_action_names());
  v.group("onExitCodes", rule.on_exit_codes, [](Visitor& match, ExitCodeMatch& codes) {
    match.choice("operator", codes.operation, exit_code_operator_names());
    match.field("values", codes.values);
  });
  v.field("onPodReasons", rule.on_pod_reasons);
  v.list("onPodConditions", rule.on_pod_conditions, [](Visitor& match, PodConditionMatch& condition) {
    match.field("type", condition.type);
    match.field("status", condition.status);
  });
}

template <typename Visitor>
void spec(Visitor& v, Spec& spec) {
  v.field("nodes", spec.nodes);
  v.count_or_auto("processesPerNode", spec.processes_per_node, spec.processes_from);
  v.field("image", spec.image);
  v.group("resourcesPerNode", spec.resources_per_node, [](Visitor& resources, Resources& value) {
    resources.raw_object("requests", value.requests);
    resources.raw_object("limits", value.limits);
  });
  v.group("checkpoints", spec.checkpoints, [](Visitor& checkpoints, Checkpoints& value) {
    checkpoints.field("claimName", value.claim_name);
    checkpoints.field("size", value.size);
    checkpoints.field("storageClassName", value.storage_class_name);
  });
  v.raw_object("template", spec.pod_template);
  v.raw_object("trainer", spec.trainer);
  v.group("failurePolicy", [&](Visitor& policy) {
    policy.field("maxRestarts", spec.failure_policy.max_restarts);
    policy.field("backoffSeconds", spec.failure_policy.backoff_seconds);
    policy.list("rules", spec.failure_policy.rules, [](Visitor& item, FailureRule& rule) { failure_rule(item, rule); });
  });
  v.group("stallPolicy", [&](Visitor& policy) { policy.field("timeoutSeconds", spec.stall_policy.timeout_seconds); });
  v.choice("successPolicy", spec.success_policy, success_policy_names());
  v.choice("cleanPodPolicy", spec.clean_pod_policy, clean_pod_policy_names());
  v.field("activeDeadlineSeconds", spec.active_deadline_seconds);
  v.field("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished);
  v.group("rendezvous", [&](Visitor& rendezvous) { rendezvous.field("port", spec.rendezvous.port); });
  v.field("suspend", spec.suspend);
  v.field("managedBy", spec.managed_by);
}

template <typename Visitor>
void condition(Visitor& v, Condition& condition) {
  v.field("type", condition.type);
  if (!condition.type.empty() && !is_own_condition(condition.type)) return v.verbatim(condition.verbatim);
  v.condition_status("status", condition.status);
  v.field("reason", condition.reason);
  v.field("message", condition.message);
  v.field("lastTransitionTime", condition.last_transition_time);
  v.unknown_members(condition.unknown_members);
}

template <typename Visitor>
void progress(Visitor& v, Progress& progress) {
  v.field("step", progress.step);
  v.field("targetSteps", progress.target_steps);
  v.field("checkpointStep", progress.checkpoint_step);
  v.field("completed", progress.completed);
  v.field("loss", progress.loss);
  v.field("samplesPerSecond", progress.samples_per_second);
  v.field("eta", progress.eta);
  v.field("updatedAt", progress.updated_at);
  v.field("lastStepTime", progress.last_step_time);
}

template <typename Visitor>
void attempt_record(Visitor& v, AttemptRecord& record) {
  v.field("attempt", record.attempt);
  v.field("startTime", record.start_time);
  v.field("endTime", record.end_time);
  v.field("reason", record.reason);
  v.field("message", record.message);
  v.field("pod", record.pod);
  v.field("node", record.node);
  v.field("nodeRank", record.node_rank);
  v.field("exitCode", record.exit_code);
  v.unknown_members(record.unknown_members);
}

template <typename Visitor>
void status(Visitor& v, Status& status) {
  v.choice("phase", status.phase, phase_names());
  v.list("conditions", status.conditions, [](Visitor& item, Condition& c) { condition(item, c); });
  v.field("observedGeneration", status.observed_generation);
  v.field("worldSize", status.world_size);
  v.field("attempt", status.attempt);
  v.group("nodes", [&](Visitor& nodes) {
    nodes.field("desired", status.nodes.desired);
    nodes.field("scheduled", status.nodes.scheduled);
    nodes.field("ready", status.nodes.ready);
    nodes.field("succeeded", status.nodes.succeeded);
    nodes.field("failed", status.nodes.failed);
    nodes.field("summary", status.nodes.summary);
  });
  v.group("finishedRanks", status.finished_ranks, [](Visitor& finished, FinishedRanks& ranks) {
    finished.field("attempt", ranks.attempt);
    finished.field("nodeRanks", ranks.node_ranks);
  });
  v.group("restarts", [&](Visitor& restarts) {
    restarts.field("total", status.restarts.total);
    restarts.field("charged", status.restarts.charged);
    restarts.list("reasons", status.restarts.reasons, [](Visitor& item, RestartCount& count) {
      item.field("reason", count.reason);
      item.field("count", count.count);
      item.unknown_members(count.unknown_members);
    });
  });
  v.group("progress", status.progress, [](Visitor& p, Progress& value) { progress(p, value); });
  v.field("startTime", status.start_time);
  v.field("attemptStartTime", status.attempt_start_time);
  v.field("completionTime", status.completion_time);
  v.list("attempts", status.attempts, [](Visitor& item, AttemptRecord& record) { attempt_record(item, record); });
}

}  // namespace oarlock::api::fields
