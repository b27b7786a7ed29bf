// Every field of a TrainingJob with its JSON name, once. A Reader is JsonReader (codec.cc), YamlReader (validate.cc),
// or whatever else has these members: read(key, target) for bool, integers, numbers, strings, times and their
// optionals; phase(key, Phase&); object(key, text) for JSON that is kept as text; map(key, fn(Reader&)); list(key,
// vector, fn(Reader&, item)). The unit test that compares the CRD with the codec is one more Reader.
#pragma once

#include "operator/api/types.h"

namespace oarlock::api::fields {

template <typename Reader>
void spec(Reader& r, Spec& spec) {
  r.read("nodes", spec.nodes);
  r.read("processesPerNode", spec.processes_per_node);
  r.object("template", spec.pod_template);
  r.object("trainer", spec.trainer);
  r.map("failurePolicy", [&](Reader& policy) { policy.read("maxRestarts", spec.failure_policy.max_restarts); });
  r.map("rendezvous", [&](Reader& rendezvous) { rendezvous.read("port", spec.rendezvous.port); });
  r.read("suspend", spec.suspend);
}

template <typename Reader>
void condition(Reader& r, Condition& condition) {
  r.read("type", condition.type);
  r.truth("status", condition.status);
  r.read("reason", condition.reason);
  r.read("message", condition.message);
  r.read("lastTransitionTime", condition.last_transition_time);
}

template <typename Reader>
void progress(Reader& r, Progress& progress) {
  r.read("step", progress.step);
  r.read("targetSteps", progress.target_steps);
  r.read("checkpointStep", progress.checkpoint_step);
  r.read("completed", progress.completed);
  r.read("loss", progress.loss);
  r.read("samplesPerSecond", progress.samples_per_second);
  r.read("eta", progress.eta);
  r.read("updatedAt", progress.updated_at);
}

template <typename Reader>
void attempt_record(Reader& r, AttemptRecord& record) {
  r.read("attempt", record.attempt);
  r.read("startTime", record.start_time);
  r.read("endTime", record.end_time);
  r.read("reason", record.reason);
  r.read("message", record.message);
  r.read("pod", record.pod);
  r.read("node", record.node);
  r.read("nodeRank", record.node_rank);
  r.read("exitCode", record.exit_code);
}

template <typename Reader>
void status(Reader& r, Status& status) {
  r.phase("phase", status.phase);
  r.list("conditions", status.conditions, [](Reader& item, Condition& c) { condition(item, c); });
  r.read("observedGeneration", status.observed_generation);
  r.read("worldSize", status.world_size);
  r.read("attempt", status.attempt);
  r.map("nodes", [&](Reader& nodes) {
    nodes.read("desired", status.nodes.desired);
    nodes.read("scheduled", status.nodes.scheduled);
    nodes.read("ready", status.nodes.ready);
    nodes.read("succeeded", status.nodes.succeeded);
    nodes.read("failed", status.nodes.failed);
    nodes.read("summary", status.nodes.summary);
  });
  r.map("restarts", [&](Reader& restarts) {
    restarts.read("total", status.restarts.total);
    restarts.read("charged", status.restarts.charged);
  });
  r.map("progress", [&](Reader& p) { progress(p, status.progress.emplace()); });
  r.read("startTime", status.start_time);
  r.read("attemptStartTime", status.attempt_start_time);
  r.read("completionTime", status.completion_time);
  r.list("attempts", status.attempts, [](Reader& item, AttemptRecord& record) { attempt_record(item, record); });
}

}  // namespace oarlock::api::fields
