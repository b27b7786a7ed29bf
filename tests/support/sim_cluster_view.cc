// What an operator observes of the simulated cluster.
#include "tests/support/sim_cluster.h"

#include <algorithm>

#include "operator/core/desired.h"
#include "operator/core/membership.h"
#include "operator/core/profile.h"
#include "operator/core/queue.h"
#include "operator/core/workload.h"

namespace oarlock::test {

using namespace control;  // NOLINT: this file is about its types

View SimCluster::view() const {
  View out;
  out.job = job_;
  for (const auto& [name, pod] : objects_.pods) {
    if (pod.owner_uid == job_.metadata.uid || objects_.conflicting.contains(name)) out.pods.push_back(pod);
  }
  if (objects_.service) out.services.push_back(*objects_.service);
  if (objects_.network_policy) out.network_policies.push_back(*objects_.network_policy);
  out.workloads = objects_.workloads;
  out.pod_groups = pod_groups_of(job_, objects_.pod_groups);
  return out;
}

std::optional<int> possible_group(const Job& job, const std::map<std::string, Pod>& pods) {
  const std::optional<api::LauncherBounds> bounds = launcher_bounds(job);
  if (!bounds || !is_running(job.status.phase)) return std::nullopt;
  const auto runs = [&](int rank) {
    const auto found = pods.find(pod_name(job, job.status.attempt, rank));
    return found != pods.end() && found->second.phase == PodPhase::kRunning && !found->second.trainer;
  };
  int nodes = 0;
  for (int rank = 0; rank < job.group_nodes(); ++rank) nodes += runs(rank) ? 1 : 0;
  return runs(0) && nodes >= bounds->min_nodes ? std::optional(nodes) : std::nullopt;
}

bool trains_with_fewer_nodes(const Job& job, const Objects& objects) {
  const std::optional<int> nodes = possible_group(job, objects.pods);
  return nodes && *nodes < job.group_nodes() && objects.reported && objects.reported->attempt == job.status.attempt &&
         objects.reported->world_size == *nodes * job.spec.processes_per_node;
}

bool is_done_exit_code(const Job& job, int exit_code) {
  return exit_code == 0 || std::ranges::any_of(job.spec.failure_policy.rules, [&](const api::FailureRule& rule) {
           return rule.action == api::FailureAction::kIgnore && rule.on_exit_codes &&
                  std::ranges::find(rule.on_exit_codes->values, exit_code) != rule.on_exit_codes->values.end();
         });
}

const Workload* find_quota(const Objects& objects) {
  const auto found =
      std::ranges::find_if(objects.workloads, [](const Workload& one) { return one.has_quota && !one.finished; });
  return found == objects.workloads.end() ? nullptr : &*found;
}

std::optional<std::vector<Workload>> workloads_of(const Job& job, std::vector<Workload> workloads) {
  if (!may_have_queue(job)) return std::nullopt;
  for (Workload& workload : workloads) workload.resource_version = version_of(workload);
  return workloads;
}

std::vector<PodGroup> pod_groups_of(const Job& job, const std::map<std::string, int>& groups) {
  std::vector<PodGroup> out;
  for (const auto& [name, minimum] : groups)
    out.push_back({GangApi::kNative, name, "uid-of-" + name, job.metadata.uid});
  return out;
}

// The spec is empty, because a job has no merged values here.
BoxedOptional<api::AppliedProfile> profile_for(const Job& job, const Objects& objects) {
  if (!may_apply_profile(job) || objects.profile.value_or(0) == 0) return {};
  return api::AppliedProfile{"default", job.metadata.namespace_name, "uid-of-profile", *objects.profile, "{}"};
}

int64_t recorded_profile(const api::Status& status) { return status.profile ? status.profile->generation : 0; }

bool is_untouched(const Job& job, const Objects& objects) {
  return job.status.phase == api::Phase::kNone && !job.status.profile && !objects.service &&
         !objects.had_network_policy && objects.created.empty();
}

Observed SimCluster::observe(const View& view) const {
  Observed out;
  out.untouched = is_untouched(job_, objects_);
  out.job = view.job;
  out.pods = view.pods;
  out.services = view.services;
  out.network_policies = view.network_policies;
  out.metrics_peers = objects_.metrics_peers;
  out.workloads = test::workloads_of(view.job, view.workloads);
  if (objects_.has_gangs) out.gang_apis = {GangApi::kNative};
  out.pod_groups = view.pod_groups;
  out.profile = profile_for(view.job, objects_);
  out.now = now_;
  out.progress = objects_.reported;
  if (out.progress) out.last_poll = StatusPoll{now_, true, true};
  return out;
}

}  // namespace oarlock::test
