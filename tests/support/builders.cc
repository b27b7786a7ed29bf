#include "tests/support/builders.h"

#include <fmt/format.h>

#include "operator/core/desired.h"

namespace oarlock::test {

using namespace control;  // NOLINT: this file is about its types

SystemTime at_second(int64_t seconds) { return SystemTime(std::chrono::seconds(1795255200 + seconds)); }

JobBuilder::JobBuilder(const std::string& name) {
  job_.metadata.name = name;
  job_.metadata.uid = kJobUid;
  job_.metadata.resource_version = "100";
  job_.metadata.generation = 1;
  job_.metadata.creation_timestamp = at_second(0);
  job_.spec.nodes = 2;
  job_.spec.pod_template = kMinimalTemplate;
  job_.spec.failure_policy.avoid_nodes_after = 0;
}

JobBuilder& JobBuilder::nodes(int count) {
  job_.spec.nodes = count;
  return *this;
}
JobBuilder& JobBuilder::elastic(int min_nodes, int shrink_after, int grow_after) {
  job_.spec.elastic.emplace();
  job_.spec.elastic->min_nodes = min_nodes;
  job_.spec.elastic->shrink_after_seconds = shrink_after;
  job_.spec.elastic->grow_after_seconds = grow_after;
  return *this;
}
JobBuilder& JobBuilder::processes_per_node(int count) {
  job_.spec.processes_per_node = count;
  return *this;
}
JobBuilder& JobBuilder::pod_template(const std::string& json) {
  job_.spec.pod_template = json;
  return *this;
}
JobBuilder& JobBuilder::trainer(const std::string& json) {
  job_.spec.trainer = json;
  return *this;
}
JobBuilder& JobBuilder::max_total_restarts(int count) {
  job_.spec.failure_policy.max_total_restarts = count;
  return *this;
}

JobBuilder& JobBuilder::max_failures_at_step(int count) {
  job_.spec.failure_policy.max_failures_at_step = count;
  return *this;
}

JobBuilder& JobBuilder::max_restarts(int count) {
  job_.spec.failure_policy.max_restarts = count;
  return *this;
}
JobBuilder& JobBuilder::avoid_nodes(int after, int seconds) {
  job_.spec.failure_policy.avoid_nodes_after = after;
  job_.spec.failure_policy.avoid_nodes_seconds = seconds;
  return *this;
}
JobBuilder& JobBuilder::rule(api::FailureRule rule) {
  job_.spec.failure_policy.rules.push_back(std::move(rule));
  return *this;
}
JobBuilder& JobBuilder::restart_scope(api::RestartScope scope) {
  job_.spec.failure_policy.restart_scope = scope;
  return *this;
}
JobBuilder& JobBuilder::backoff_seconds(int seconds) {
  job_.spec.failure_policy.backoff_seconds = seconds;
  return *this;
}
JobBuilder& JobBuilder::success_policy(api::SuccessPolicy policy) {
  job_.spec.success_policy = policy;
  return *this;
}
JobBuilder& JobBuilder::clean_pod_policy(api::CleanPodPolicy policy) {
  job_.spec.clean_pod_policy = policy;
  return *this;
}
JobBuilder& JobBuilder::deadline_seconds(int seconds) {
  job_.spec.active_deadline_seconds = seconds;
  return *this;
}
JobBuilder& JobBuilder::stall_seconds(int seconds, api::StallAction action) {
  job_.spec.stall_policy = {
      .timeout_seconds = seconds, .start_timeout_seconds = start_timeout_of(seconds), .action = action};
  return *this;
}
JobBuilder& JobBuilder::queue(const std::string& name) {
  job_.metadata.queue = name;
  return *this;
}

JobBuilder& JobBuilder::pending_timeout(int seconds) {
  job_.spec.scheduling.pending_timeout_seconds = seconds;
  return *this;
}
JobBuilder& JobBuilder::ttl_seconds(int seconds) {
  job_.spec.ttl_seconds_after_finished = seconds;
  return *this;
}
JobBuilder& JobBuilder::managed_by(const std::string& manager) {
  job_.spec.managed_by = manager;
  return *this;
}
JobBuilder& JobBuilder::suspend(bool value) {
  job_.spec.suspend = value;
  return *this;
}
JobBuilder& JobBuilder::being_deleted() {
  job_.metadata.deletion_timestamp = at_second(50);
  return *this;
}
JobBuilder& JobBuilder::phase(api::Phase phase, int attempt) {
  job_.status.phase = phase;
  job_.status.attempt = attempt;
  job_.status.observed_generation = job_.metadata.generation;
  job_.status.world_size = job_.world_size();
  job_.status.start_time = at_second(1);
  job_.status.attempt_start_time = at_second(1);
  job_.status.conditions = {{to_string(phase), true, "Set", "by the test", at_second(1)}};
  job_.status.nodes.desired = job_.spec.nodes;
  job_.status.nodes.summary = fmt::format("0/{}", job_.spec.nodes);
  if (is_terminal(phase)) job_.status.completion_time = at_second(2);
  return *this;
}
JobBuilder& JobBuilder::finished(int attempt, const std::string& node_ranks) {
  job_.status.finished_ranks = api::FinishedRanks{attempt, node_ranks};
  return *this;
}
JobBuilder& JobBuilder::restarts(int count) {
  job_.status.restarts = {count, count, {}};
  if (count > 0) {
    job_.status.restarts.reasons = {{"PodFailed", count}};
    job_.status.restarts.after_progress.emplace();
  }
  return *this;
}
JobBuilder& JobBuilder::status(const api::Status& status) {
  job_.status = status;
  return *this;
}

PodBuilder::PodBuilder(const std::string& job, int attempt, int node_rank) {
  pod_.name = fmt::format("{}-{}-{}", job, attempt, node_rank);
  pod_.uid = "uid-of-" + pod_.name;
  pod_.resource_version = "200";
  pod_.owner_uid = kJobUid;
  pod_.regroup_key = kRegroupKey;
}

PodBuilder& PodBuilder::name(const std::string& name) {
  pod_.name = name;
  return *this;
}
PodBuilder& PodBuilder::uid(const std::string& uid) {
  pod_.uid = uid;
  return *this;
}
PodBuilder& PodBuilder::owner(const std::string& uid) {
  pod_.owner_uid = uid;
  return *this;
}
PodBuilder& PodBuilder::regroup_key(const std::string& key) {
  pod_.regroup_key = key;
  return *this;
}
PodBuilder& PodBuilder::scheduled(const std::string& node) {
  pod_.scheduled = true;
  pod_.node_name = node;
  return *this;
}
PodBuilder& PodBuilder::scheduled_at(SystemTime time) {
  if (!pod_.scheduled) scheduled();
  pod_.scheduled_at = time;
  return *this;
}
PodBuilder& PodBuilder::unschedulable(const std::string& message) {
  pod_.scheduled = false;
  pod_.unscheduled_message = message;
  return *this;
}
PodBuilder& PodBuilder::waiting(const std::string& reason, const std::string& message) {
  if (!pod_.scheduled) scheduled();
  pod_.waiting_reason = reason;
  pod_.waiting_message = message;
  return *this;
}
PodBuilder& PodBuilder::running() {
  if (!pod_.scheduled) scheduled();
  pod_.phase = PodPhase::kRunning;
  pod_.started = true;
  pod_.ready = true;
  pod_.pod_ip = "10.0.0.1";
  return *this;
}
PodBuilder& PodBuilder::started_at(SystemTime time) {
  running();
  pod_.started_at = time;
  return *this;
}
PodBuilder& PodBuilder::ended(int exit_code, const std::string& message, const std::string& reason) {
  trainer_ended(exit_code);
  pod_.phase = exit_code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
  pod_.trainer->message = message;
  if (!reason.empty()) pod_.trainer->reason = reason;
  return *this;
}
PodBuilder& PodBuilder::trainer_ended(int exit_code) {
  running();
  pod_.ready = false;
  pod_.trainer = Termination{exit_code, exit_code == 0 ? "Completed" : "Error", "", at_second(59)};
  return *this;
}
PodBuilder& PodBuilder::finished_at(SystemTime time) {
  pod_.trainer->finished_at = time;
  return *this;
}
PodBuilder& PodBuilder::evicted(const std::string& message) {
  if (!pod_.scheduled) scheduled();
  pod_.phase = PodPhase::kFailed;
  pod_.started = true;
  pod_.ready = false;
  pod_.reason = "Evicted";
  pod_.message = message;
  return *this;
}
PodBuilder& PodBuilder::disrupted(const std::string& reason) {
  pod_.disruption = reason;
  return *this;
}
PodBuilder& PodBuilder::deleting() {
  pod_.deleting = true;
  return *this;
}

PodBuilder& PodBuilder::deleting_until(SystemTime grace_ends_at, int grace_seconds) {
  pod_.deleting = true;
  pod_.grace_ends_at = grace_ends_at;
  pod_.grace_seconds = grace_seconds;
  return *this;
}
PodBuilder& PodBuilder::avoiding(const AvoidedNodes& nodes, SystemTime created) {
  pod_.avoided = nodes;
  pod_.created = created;
  return *this;
}
PodBuilder& PodBuilder::unreachable() {
  pod_.ready = false;
  pod_.unreachable = true;
  return *this;
}

PodBuilder& PodBuilder::owner_job(const std::string& uid) {
  pod_.owner_uid = uid;
  pod_.owner_is_job = true;
  return *this;
}
PodBuilder& PodBuilder::stop_requested(SystemTime time) {
  pod_.stop_requested_at = time;
  return *this;
}

Service service_of(const Job& job) {
  return {service_name(job), "uid-of-service", job.metadata.uid, true, false, at_second(60), kRegroupKey};
}

NetworkPolicy network_policy_of(const Job& job, const std::string& peers) {
  return {.name = network_policy_name(job.metadata.name),
          .uid = "uid-of-policy",
          .owner_uid = job.metadata.uid,
          .owner_is_job = true,
          .deleting = false,
          .digest = spec_digest(desired_network_policy(job, peers)["spec"])};
}

Observed seen(const Job& job, std::vector<Pod> pods) {
  Observed out;
  out.job = job;
  out.pods = std::move(pods);
  if (!is_terminal(job.status.phase)) out.services = {service_of(job)};  // removed with the pods of a finished job
  out.now = at_second(60);
  return out;
}

api::Status status_after(const Observed& observed, const Plan& plan) {
  const std::vector<PatchStatus> patches = only<PatchStatus>(plan);
  return patches.empty() ? observed.job.status : patches.back().status;
}

std::vector<std::string> names(const Plan& plan) {
  struct Name {
    std::string operator()(const ConfirmPodAbsent& action) const { return "ConfirmPodAbsent " + action.name; }
    std::string operator()(const ConfirmJobUnchanged&) const { return "ConfirmJobUnchanged"; }
    std::string operator()(const CreateService& action) const { return "CreateService " + action.name; }
    std::string operator()(const CreateClaim& action) const { return "CreateClaim " + action.name; }
    std::string operator()(const CreateNetworkPolicy& action) const { return "CreateNetworkPolicy " + action.name; }
    std::string operator()(const ReplaceNetworkPolicy& action) const { return "ReplaceNetworkPolicy " + action.name; }
    std::string operator()(const DeleteNetworkPolicy& action) const { return "DeleteNetworkPolicy " + action.name; }
    std::string operator()(const CreateWorkload& action) const { return "CreateWorkload " + action.name; }
    std::string operator()(const ConfirmWorkloadUnchanged& action) const {
      return "ConfirmWorkloadUnchanged " + action.name;
    }
    std::string operator()(const UpdateWorkload& action) const {
      constexpr const char* kChanges[] = {"Release", "Ready", "NotReady", "Succeed", "Fail"};
      return fmt::format("UpdateWorkload {} {}", kChanges[static_cast<int>(action.change)], action.name);
    }
    std::string operator()(const DeleteWorkload& action) const { return "DeleteWorkload " + action.name; }
    std::string operator()(const CreatePodGroup& action) const { return "CreatePodGroup " + action.name; }
    std::string operator()(const DeletePodGroup& action) const { return "DeletePodGroup " + action.name; }
    std::string operator()(const CreatePod& action) const { return "CreatePod " + action.name; }
    std::string operator()(const DeletePod& action) const { return "DeletePod " + action.name; }
    std::string operator()(const DeleteService& action) const { return "DeleteService " + action.name; }
    std::string operator()(const DeleteJob& action) const { return "DeleteJob " + action.name; }
    std::string operator()(const PatchStatus& action) const {
      return fmt::format("PatchStatus {} {}", to_string(action.status.phase), action.status.attempt);
    }
    std::string operator()(const EmitEvent& action) const { return "EmitEvent " + action.reason; }
  };
  std::vector<std::string> out;
  for (const Action& action : plan.actions) out.push_back(std::visit(Name{}, action));
  return out;
}

}  // namespace oarlock::test
