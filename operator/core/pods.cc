#include "operator/core/pods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/validate.h"
#include "common/json_access.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/gang.h"
#include "operator/core/handover.h"
#include "operator/core/placement.h"
#include "operator/core/queue.h"
#include "operator/core/status.h"

namespace oarlock::control {
namespace {

// How long a pod may take to terminate after its trainer has. The kubelet reports the end of a container shortly before
// the end of the pod, and a pod that is deleted in between loses its log. A pod that exceeds this time has another
// container that continues to run.
constexpr std::chrono::seconds kTerminationGracePeriod{10};

// The NetworkPolicy precedes the Service and the pods, so that no pod runs without it.
std::vector<Action> network_policy_actions(const Observed& observed, const Membership& members) {
  if (!members.wants_network_policy || members.conflicting_network_policy != nullptr) return {};
  nlohmann::json desired = desired_network_policy(observed.job, *observed.metrics_peers);
  const NetworkPolicy* present = members.network_policy;
  if (present == nullptr)
    return {CreateNetworkPolicy{network_policy_name(observed.job.metadata.name), dump_json(desired)}};
  if (present->deleting || present->digest == spec_digest(desired["spec"])) return {};
  desired["metadata"]["uid"] = present->uid;
  return {ReplaceNetworkPolicy{present->name, dump_json(desired)}};
}

// Returns the images of the attempt's pods, which another version of the operator may have created. Pods of versions
// before the annotations have that launcher which the status names.
ChosenImages chosen_images(const Job& job, const Membership& members) {
  ChosenImages out;
  for (const Pod* pod : members.current) {
    if (pod == nullptr) continue;
    out = pod->images;
    break;
  }
  if (out.launcher.empty()) out.launcher = launcher_image(job);
  return out;
}

// Deletes the lost pods that remain, and creates their replacements once they no longer exist. A new pod has the name
// of the lost one, so the API server cannot have both.
std::vector<Action> replacement_actions(const Job& job, const Membership& members,
                                        const std::optional<Admission>& admission,
                                        const BoxedOptional<AvoidedNodes>& avoided) {
  std::vector<Action> out;
  const auto is_absent = [&](size_t i) { return is_replacement_due(members, i) && members.current[i] == nullptr; };
  for (size_t i = 0; admission && out.empty() && i < members.current.size(); ++i) {
    if (is_absent(i)) out.emplace_back(confirm_admission(members));
  }
  for (size_t i = 0; i < members.current.size(); ++i) {
    if (!is_replacement_due(members, i)) continue;
    const Pod* lost = members.current[i];
    const int node_rank = static_cast<int>(i);
    if (lost == nullptr) {
      out.emplace_back(CreatePod{.name = pod_name(job, job.status.attempt, node_rank),
                                 .attempt = job.status.attempt,
                                 .node_rank = node_rank,
                                 .is_replacement = true,
                                 .nodes = job.group_nodes(),
                                 .launchers = launcher_bounds(job),
                                 .images = chosen_images(job, members),
                                 .admission = admission,
                                 .avoided = avoided});
    } else if (!lost->deleting) {
      out.emplace_back(DeletePod{lost->name, lost->uid, "", "a new pod replaces it"});
    }
  }
  return out;
}

// With `exact`, the resourceVersion is a precondition: the pod must not have changed since it was observed.
void remove(const Pod& pod, const char* reason, bool exact, Deletions& out) {
  if (!pod.deleting) out.actions.emplace_back(DeletePod{pod.name, pod.uid, exact ? pod.resource_version : "", reason});
}

// Deletes a live pod that has no more work since `since`, unless its trainer has terminated and the pod is about to.
void stop(const Pod& pod, const char* reason, bool exact, SystemTime since, SystemTime now, Deletions& out) {
  if (!is_live(pod) || pod.deleting) return;
  if (const auto left = time_until(end_of_delay(since, kTerminationGracePeriod, now), now); pod.trainer && left) {
    out.requeue_after = left;
    return;
  }
  remove(pod, reason, exact, out);
}

template <typename Fn>
void for_each_pod(const Membership& members, Fn visit) {
  for (const Pod* pod : members.current) {
    if (pod != nullptr) visit(*pod);
  }
  for (const Pod* pod : members.old) visit(*pod);
  for (const Pod* pod : members.newer) visit(*pod);
}

}  // namespace

bool can_create_pods(api::Phase phase) {
  return phase == api::Phase::kNone || phase == api::Phase::kPending || phase == api::Phase::kRestarting;
}

bool has_missing_objects(const Job& job, const Membership& members) {
  const bool lacks_policy = members.wants_network_policy && members.network_policy == nullptr;
  return members.service == nullptr || lacks_policy || (can_create_pods(job.status.phase) && has_missing_pods(members));
}

std::string conflicting_names(const Membership& members) {
  std::vector<std::string> names;
  if (members.conflicting_service != nullptr) names.push_back("Service " + members.conflicting_service->name);
  if (members.conflicting_network_policy != nullptr)
    names.push_back("NetworkPolicy " + members.conflicting_network_policy->name);
  for (const Pod* pod : members.conflicting_pods) names.push_back("pod " + pod->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Creations create_missing_objects(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  Creations out;
  append(out.actions, network_policy_actions(observed, members));
  if (members.service == nullptr)
    out.actions.emplace_back(CreateService{service_name(job), dump_json(desired_service(job))});
  if (is_waiting_for_queue(observed, members)) {
    Creations quota = request_quota(observed, members);
    append(out.actions, std::move(quota.actions));
    out.requeue_after =
        earliest(quota.requeue_after, find_handover(job.status, job, members, observed.now).wait);  // in the message
    return out;
  }
  const Admission* assigned = find_admission(members);
  const std::optional<Admission> admission = assigned == nullptr ? std::nullopt : std::optional(*assigned);
  const BoxedOptional<AvoidedNodes> avoided = avoided_nodes(job, admission, observed.now);
  if (is_running(job.status.phase)) append(out.actions, replacement_actions(job, members, admission, avoided));
  if (!can_create_pods(job.status.phase)) return out;
  const std::optional<Gang> gang = find_gang(observed, members);
  std::vector<Action> group = create_pod_group(observed, members, gang);
  if (!has_missing_pods(members) && group.empty()) return out;
  out.requeue_after = time_until(restart_time(job, job.status, observed.now), observed.now);
  if (!out.requeue_after) out.requeue_after = find_handover(job.status, job, members, observed.now).wait;
  if (out.requeue_after) return out;
  const int attempt = job.status.attempt;
  if (admission) out.actions.emplace_back(confirm_admission(members));
  append(out.actions, std::move(group));
  // There is no informer of claims: the request is repeated for each attempt, which costs little.
  const ChosenImages images = chosen_images(job, members);
  if (needs_new_claim(job))
    out.actions.emplace_back(CreateClaim{claim_name(job), attempt, dump_json(desired_claim(job)), images});
  const std::optional<api::LauncherBounds> launchers = launcher_bounds(job);
  for (size_t i = 0; i < members.current.size(); ++i) {
    if (members.current[i] != nullptr || is_recorded_finished(members, i)) continue;
    const int node_rank = static_cast<int>(i);
    out.actions.emplace_back(CreatePod{pod_name(job, attempt, node_rank), attempt, node_rank, false, job.group_nodes(),
                                       launchers, images, admission, gang, avoided});
  }
  return out;
}

bool keeps_counted_pods(const Observed& observed, const Membership& members) {
  const std::string& error = observed.last_error;
  if (error.find("exceeded quota") == std::string::npos || error.find("count/pods") == std::string::npos) return false;
  return has_missing_pods(members) &&
         std::ranges::any_of(members.old, [](const Pod* pod) { return !is_live(*pod) && !pod->deleting; });
}

Deletions delete_old_pods(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  const SystemTime ended = status.attempts.empty() ? observed.now : status.attempts.back().end_time;
  const SystemTime since = status.attempt_start_time.value_or(ended);  // absent while the job waits for its queue
  const bool may_end =
      std::ranges::any_of(members.old, [](const Pod* pod) { return is_live(*pod) && !pod->unreachable; });
  const int first_kept = first_kept_attempt(status);
  Deletions out;
  out.makes_room = !may_end && observed.now - since >= kQuotaGracePeriod && keeps_counted_pods(observed, members);
  for (const Pod* pod : members.old) {
    if (is_live(*pod)) {
      stop(*pod, "it belongs to an earlier attempt", false, since, observed.now, out);
    } else if (parse_pod_name(observed.job, pod->name)->attempt < first_kept) {
      remove(*pod, "it ended two attempts ago", false, out);
    } else if (out.makes_room) {
      remove(*pod, "the quota of the namespace counts it", false, out);
    }
  }
  return out;
}

Deletions delete_live_pods(const Observed& observed, const Membership& members, const char* reason, SystemTime since) {
  Deletions out;
  for_each_pod(members, [&](const Pod& pod) { stop(pod, reason, false, since, observed.now, out); });
  return out;
}

Deletions delete_leftovers(const Observed& observed, const Membership& members, SystemTime since) {
  const api::CleanPodPolicy policy = observed.job.spec.clean_pod_policy;
  const bool keeps_all = policy == api::CleanPodPolicy::kNone;
  Deletions out;
  if (keeps_all && !observed.job.status.queue) return out;
  for_each_pod(members, [&](const Pod& pod) {
    if (is_live(pod)) {
      stop(pod, "the job has ended", true, since, observed.now, out);
    } else if (policy == api::CleanPodPolicy::kAll) {
      remove(pod, "the job has ended and cleanPodPolicy is All", false, out);
    }
  });
  if (keeps_all) return out;
  // Running pods may resolve each other's names until they are deleted. A pod that is being deleted still accepts
  // connections.
  bool has_running_pods = false;
  bool has_live_pods = false;
  for_each_pod(members, [&](const Pod& pod) {
    has_live_pods |= is_live(pod);
    has_running_pods |= is_live(pod) && !pod.deleting;
  });
  if (members.service != nullptr && !members.service->deleting && !has_running_pods)
    out.actions.emplace_back(DeleteService{members.service->name, members.service->uid});
  const NetworkPolicy* network_policy = members.network_policy;
  if (network_policy != nullptr && !network_policy->deleting && !has_live_pods)
    out.actions.emplace_back(DeleteNetworkPolicy{network_policy->name, network_policy->uid});
  return out;
}

Plan start_attempt(const Observed& observed, api::Status next, std::vector<Action> guards, std::vector<Action> events,
                   std::string reason) {
  Observed after = observed;
  after.job.status = std::move(next);
  const Membership members = classify_objects(after);
  after.job.status = refresh_status(after, members);

  Plan plan = make_plan(PlanState::kProgress, std::move(reason));
  plan.actions = std::move(guards);
  plan.actions.emplace_back(PatchStatus{after.job.status});
  append(plan.actions, std::move(events));
  Deletions old = delete_old_pods(after, members);
  append(plan.actions, std::move(old.actions));
  plan.requeue_after = old.requeue_after;
  if (conflicting_names(members).empty() && validate_group(after.job, after.job.group_nodes()).empty()) {
    Creations missing = create_missing_objects(after, members);
    append(plan.actions, std::move(missing.actions));
    plan.requeue_after = earliest(plan.requeue_after, missing.requeue_after);
  }
  return plan;
}

Plan finish_job(const Observed& observed, const Membership& members, api::Status next, std::vector<Action> guards,
                EmitEvent event) {
  Plan plan = make_plan(PlanState::kComplete, event.message);
  plan.actions = std::move(guards);
  plan.actions.emplace_back(PatchStatus{std::move(next)});
  plan.actions.emplace_back(std::move(event));
  Deletions leftovers = delete_leftovers(observed, members, observed.now);
  append(plan.actions, std::move(leftovers.actions));
  plan.requeue_after = leftovers.requeue_after;
  return plan;
}

}  // namespace oarlock::control
