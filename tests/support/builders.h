// Fluent builders of the objects that the operator's core observes. A new job is valid; a new pod belongs to it and is
// not scheduled yet.
#pragma once

#include <string>

#include "operator/core/model.h"

namespace oarlock::test {

inline constexpr char kJobUid[] = "job-uid-1";
inline constexpr char kRegroupKey[] = "key";  // of the pods and of the Service
inline constexpr char kMinimalTemplate[] =
    R"({"spec":{"containers":[{"image":"example/trainer:1","name":"trainer"}]}})";

// Returns 2026-11-21T10:00:00Z plus the given number of seconds.
SystemTime at_second(int64_t seconds);

class JobBuilder {
 public:
  explicit JobBuilder(const std::string& name = "bert");

  JobBuilder& nodes(int count);
  // The group may have at least `min_nodes`; both times are given in seconds.
  JobBuilder& elastic(int min_nodes, int shrink_after = 300, int grow_after = 1800);
  JobBuilder& processes_per_node(int count);
  JobBuilder& pod_template(const std::string& json);
  JobBuilder& trainer(const std::string& json);
  JobBuilder& max_restarts(int count);
  JobBuilder& max_total_restarts(int count);
  JobBuilder& max_failures_at_step(int count);
  // A new job avoids no nodes, unlike one with the defaults.
  JobBuilder& avoid_nodes(int after, int seconds = 86400);
  JobBuilder& rule(api::FailureRule rule);
  JobBuilder& backoff_seconds(int seconds);
  JobBuilder& restart_scope(api::RestartScope scope);
  JobBuilder& success_policy(api::SuccessPolicy policy);
  JobBuilder& clean_pod_policy(api::CleanPodPolicy policy);
  JobBuilder& deadline_seconds(int seconds);
  // startTimeoutSeconds is start_timeout_of(seconds).
  JobBuilder& stall_seconds(int seconds, api::StallAction action = api::StallAction::kNone);
  JobBuilder& pending_timeout(int seconds);
  JobBuilder& queue(const std::string& name);  // the label; the status has no queue yet
  static constexpr int start_timeout_of(int seconds) { return seconds * 3 / 2; }
  JobBuilder& ttl_seconds(int seconds);
  JobBuilder& managed_by(const std::string& manager);
  JobBuilder& suspend(bool value = true);
  JobBuilder& being_deleted();
  // Sets the status as the operator would: condition, start times, counts of `attempt`.
  JobBuilder& phase(api::Phase phase, int attempt = 0);
  JobBuilder& restarts(int count);
  JobBuilder& finished(int attempt, const std::string& node_ranks);
  JobBuilder& status(const api::Status& status);

  control::Job build() const { return job_; }
  operator control::Job() const { return job_; }  // NOLINT: implicit, so that a builder can be passed as a job

 private:
  control::Job job_;
};

class PodBuilder {
 public:
  PodBuilder(const std::string& job, int attempt, int node_rank);

  PodBuilder& name(const std::string& name);
  PodBuilder& uid(const std::string& uid);
  PodBuilder& owner(const std::string& uid);        // another owner
  PodBuilder& owner_job(const std::string& uid);    // another TrainingJob with the same name
  PodBuilder& regroup_key(const std::string& key);  // instead of kRegroupKey
  PodBuilder& scheduled(const std::string& node = "node-1");
  PodBuilder& scheduled_at(SystemTime time);
  PodBuilder& unschedulable(const std::string& message);
  PodBuilder& waiting(const std::string& reason, const std::string& message = "");
  PodBuilder& started_at(SystemTime time);  // running since then
  PodBuilder& running();                    // scheduled, ready, with an address
  // The trainer container and the pod terminated together.
  PodBuilder& ended(int exit_code, const std::string& message = "", const std::string& reason = "");
  // The trainer container terminated; another one continues to run.
  PodBuilder& trainer_ended(int exit_code);
  PodBuilder& finished_at(SystemTime time);
  PodBuilder& evicted(const std::string& message = "");
  PodBuilder& disrupted(const std::string& reason);
  PodBuilder& deleting();
  PodBuilder& deleting_until(SystemTime grace_ends_at, int grace_seconds = 30);
  PodBuilder& avoiding(const control::AvoidedNodes& nodes, SystemTime created);
  PodBuilder& unreachable();
  PodBuilder& stop_requested(SystemTime time);

  control::Pod build() const { return pod_; }
  operator control::Pod() const { return pod_; }  // NOLINT

 private:
  control::Pod pod_;
};

control::Service service_of(const control::Job& job);

// Returns the NetworkPolicy as the operator creates it for these peers.
control::NetworkPolicy network_policy_of(const control::Job& job, const std::string& peers);

// Returns the state at at_second(60), including the Service unless the job is finished.
control::Observed seen(const control::Job& job, std::vector<control::Pod> pods = {});

// Returns the actions of one type in order.
template <typename T>
std::vector<T> only(const control::Plan& plan) {
  std::vector<T> out;
  for (const control::Action& action : plan.actions) {
    if (const T* wanted = std::get_if<T>(&action)) out.push_back(*wanted);
  }
  return out;
}

// Returns the status that the plan writes, or the present one if it writes none.
api::Status status_after(const control::Observed& observed, const control::Plan& plan);

// "ConfirmPodAbsent bert-0-1", "PatchStatus Restarting 1", "DeletePod bert-0-0", "CreatePod bert-1-0", "EmitEvent
// Restarting" ...
std::vector<std::string> names(const control::Plan& plan);

}  // namespace oarlock::test
