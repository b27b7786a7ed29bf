#include "tests/support/model/invariants.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/membership.h"
#include "operator/core/placement.h"
#include "operator/core/queue.h"
#include "operator/core/status.h"
#include "operator/core/text.h"
#include "operator/core/workload.h"
#include "tests/support/model/bad_node_invariants.h"
#include "tests/support/model/budget_invariants.h"
#include "tests/support/model/profile_invariants.h"
#include "tests/support/model/queue_invariants.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT: this file is about its types
using api::Phase;

std::vector<bool> recorded_ranks(const Job& job) {
  const BoxedOptional<api::FinishedRanks>& recorded = job.status.finished_ranks;
  const bool is_present = recorded && recorded->attempt == job.status.attempt;
  return parse_rank_set(is_present ? recorded->node_ranks : "", static_cast<size_t>(job.group_nodes()));
}

// Returns the record of a lost pod of the current attempt; null if there is none.
const api::Replacement* find_replacement(const Job& job, int node_rank) {
  for (const api::Replacement& one : job.status.replacements) {
    if (one.attempt == job.status.attempt && one.node_rank == node_rank) return &one;
  }
  return nullptr;
}

int used_restarts(const api::Status& status) {
  return status.restarts.charged + (status.recoveries ? status.recoveries->charged : 0);
}

// Each pod that is lost is counted at most once: a record of the same pod is not written again.
std::string check_replacements(const Job& before, const Job& after, const World& world) {
  const auto pods = [](const Job& job) { return job.status.recoveries ? job.status.recoveries->pods : 0; };
  const int counted = pods(after) - pods(before);
  int added = 0;
  for (const api::Replacement& one : after.status.replacements) {
    if (one.attempt != after.status.attempt) return "a record of a replacement is of another attempt";
    const api::Replacement* known = find_replacement(before, one.node_rank);
    if (known == nullptr || known->pod_uid != one.pod_uid) ++added;
  }
  if (counted != added) return "a replacement is not counted once";
  if (counted != 0 && !world.has_failed) return "a replacement without a failure";
  if (counted != 0 && used_restarts(after.status) > after.spec.failure_policy.max_restarts)
    return "more replacements than allowed";
  return "";
}

std::string check_creation(const CreatePod& create, const SimCluster& before) {
  if (before.pods().contains(create.name)) return "";
  const Job& job = before.job();
  const std::optional<PodIdentity> id = parse_pod_name(job, create.name);
  if (!id || id->attempt != job.status.attempt) return "a pod is created for an attempt that is not the current one";
  if (id->node_rank >= job.group_nodes()) return "a pod is created for a rank that does not exist";
  if (create.nodes != job.group_nodes()) return "a pod is created with another size than its attempt";
  if (create.launchers != launcher_bounds(job)) return "a pod is created with other bounds than its attempt";
  if (is_terminal(job.status.phase)) return "a pod is created for a finished job";
  const Objects& objects = before.objects();
  if (job.status.queue && find_quota(objects) == nullptr && !objects.lost_workload)
    return "a pod is created without quota";
  if (job.status.phase == Phase::kSuspended) return "a pod is created for a suspended job";
  if (before.objects().metrics_peers && !before.objects().had_network_policy)
    return "a pod is created before the job's NetworkPolicy";
  if (recorded_ranks(job)[static_cast<size_t>(id->node_rank)]) return "a pod is created for a finished rank";
  if (std::string problem = check_gang(create, before, std::ranges::count(recorded_ranks(before.job()), true) > 0);
      !problem.empty())
    return problem;
  if (std::string problem = check_avoidance(create, before); !problem.empty()) return problem;
  const bool is_recorded = find_replacement(job, id->node_rank) != nullptr;
  if (is_running(job.status.phase) && !is_recorded) return "a pod is replaced without a record";
  if (create.is_replacement != is_recorded) return "a pod has the wrong role";
  return "";
}

std::string check_deletion(const DeletePod& remove, const SimCluster& before) {
  const auto found = before.pods().find(remove.name);
  if (found == before.pods().end() || found->second.uid != remove.uid) return "";
  if (!remove.resource_version.empty() && remove.resource_version != found->second.resource_version) return "";
  const Job& job = before.job();
  if (found->second.owner_uid != job.metadata.uid) return "a pod of another owner is deleted";
  const PodIdentity id = *parse_pod_name(job, remove.name);
  const api::Replacement* replacement = find_replacement(job, id.node_rank);
  const bool is_replaced = replacement != nullptr && replacement->pod_uid == remove.uid;
  if (is_replaced && !has_ended(found->second) && !found->second.deleting)
    return "a pod is replaced that has not ended";
  const bool is_current = id.attempt == job.status.attempt;
  const bool is_unplaced = found->second.avoided && !has_node(found->second);  // it is created again
  const bool may = !is_current || is_replaced || is_unplaced || is_terminal(job.status.phase) ||
                   job.status.phase == Phase::kSuspended;
  return may ? "" : "a pod of the running attempt is deleted";
}

bool is_by_deadline(const api::Status& status) {
  const api::Condition* failed = find_condition(status, Phase::kFailed);
  return failed != nullptr && failed->reason == "DeadlineExceeded";
}

// Whether a pod has failed, or the group may restart because no step completes.
bool may_restart(const api::Status& was, const Job& job, const World& world) {
  const api::StallPolicy& policy = job.spec.stall_policy;
  const bool starts = was.progress && !was.progress->last_step_time;
  const std::chrono::seconds timeout(starts ? policy.start_timeout_seconds : policy.timeout_seconds);
  const bool is_late = world.ticks_without_step * Worlds::kTick >= timeout;
  return world.has_failed || (was.phase == Phase::kStalled && policy.action == api::StallAction::kRestart && is_late);
}

std::string check_counts(const api::Status& was, const api::Status& is, const Job& job, const World& world) {
  const int counted = is.restarts.total - was.restarts.total;
  const int charged = is.restarts.charged - was.restarts.charged;
  if (is.attempt < was.attempt) return "the attempt decreases";
  if (counted == 0 && is.attempt != was.attempt && was.phase != Phase::kSuspended)
    return "a new attempt without a restart or resume";
  if (counted != 0 && (counted != 1 || is.attempt != was.attempt + 1)) return "a restart is not counted once";
  const bool is_resized = !is.attempts.empty() && ended_by_resize(is.attempts.back());
  const bool is_unplaced = !is.attempts.empty() && ended_unplaced(is.attempts.back());
  const bool is_queued = !is.attempts.empty() && ended_by_queue(is.attempts.back());
  if (counted != 0 && !may_restart(was, job, world) && !is_resized && !is_unplaced && !is_queued)
    return "a restart without a failure";
  if (is_queued && counted != 0 && (charged != 0 || !job.status.queue)) return "an eviction by a queue is charged";
  if (charged != 0 && is_unplaced) return "a group that could not be placed counts as a restart";
  if (charged != 0 && is_resized) return "a change of the size counts as a restart";
  if (charged < 0 || charged > counted) return "restarts.charged is wrong";
  if (charged > 0 && used_restarts(is) > job.spec.failure_policy.max_restarts) return "more restarts than allowed";
  int by_reason = 0;
  for (const api::RestartCount& count : is.restarts.reasons) by_reason += count.count;
  return by_reason == is.restarts.total ? "" : "the sum of restarts.reasons is wrong";
}

// Returns the node ranks whose pods were lost and have not been replaced, as bits, if the launchers trained without
// them.
unsigned left_out_ranks(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const std::optional<RankStatus>& reported = cluster.objects().reported;
  if (!launcher_bounds(job) || !reported || reported->attempt != job.status.attempt) return 0;
  unsigned out = 0;
  int left = job.world_size();
  for (const api::Replacement& lost : job.status.replacements) {
    const auto pod = cluster.pods().find(pod_name(job, job.status.attempt, lost.node_rank));
    if (pod != cluster.pods().end() && (pod->second.phase == PodPhase::kRunning || is_disconnected(pod->second)))
      continue;
    out |= 1U << static_cast<unsigned>(lost.node_rank);
    left -= job.spec.processes_per_node;
  }
  for (const auto& [name, pod] : cluster.pods()) {
    const std::optional<PodIdentity> id = parse_pod_name(job, name);
    if (!id || id->attempt != job.status.attempt || !is_disconnected(pod)) continue;
    out |= 1U << static_cast<unsigned>(id->node_rank);
    left -= job.spec.processes_per_node;
  }
  return reported->world_size <= left ? out : 0;
}

std::string check_end(const SimCluster& before, const api::Status& is, const Job& job, const World& world) {
  const api::Status& was = before.job().status;
  if (is_terminal(was.phase)) {
    api::Status frozen = is;
    frozen.observed_generation = was.observed_generation;
    return frozen == was ? "" : "a terminal status changes";
  }
  if (is.phase == Phase::kFailed && !is_by_deadline(is)) {
    if (!may_restart(was, job, world)) return "failed without a failure";
    const std::string& reason = find_condition(is, Phase::kFailed)->reason;
    const bool is_budget = reason == kMaxRestartsExceeded || reason == kNoProgress;  // check_budget()
    if (!world.has_no_remedy && !is_budget) return "failed too early";
  }
  if (is.phase == Phase::kComplete) {
    const unsigned wanted = job.spec.success_policy == api::SuccessPolicy::kRank0
                                ? 1U
                                : (1U << static_cast<unsigned>(job.group_nodes())) - 1;
    const unsigned missing = wanted & ~static_cast<unsigned>(world.done);
    if (missing != 0 && (missing & ~left_out_ranks(before)) != 0) return "complete before the ranks succeeded";
  }
  return "";
}

// Finished ranks remain finished during the attempt, and only ranks whose trainer completed its part are finished.
std::string check_finished(const Job& before, const Job& after, const World& world) {
  if (before.status.attempt != after.status.attempt) return "";
  const std::vector<bool> was = recorded_ranks(before);
  const std::vector<bool> is = recorded_ranks(after);
  for (size_t rank = 0; rank < std::min(was.size(), is.size()); ++rank) {
    if (was[rank] && !is[rank]) return "the record of a finished rank is lost";
    if (is[rank] && (world.done >> rank & 1U) == 0) return "a rank that has not succeeded is recorded as finished";
  }
  return "";
}

// Pods without a node have time to get one after the last placement. Groups of the model have at most one pod more than
// minNodes, so that no placement is too late to count: that limit, the replacements of lost pods, and a difference
// between the API server's clock and the operator's are not explored, and shrinkAfterSeconds, which is shorter than
// kPlacementTime here, is the time that pods have. reconcile_elastic_test covers the rest. An operator whose cache is
// old may not have observed that a pod with a node was replaced by one without.
std::string check_settled(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const std::chrono::seconds limit(job.spec.elastic->shrink_after_seconds);
  bool has_unplaced = false;
  bool has_settled = true;
  for (const auto& [name, pod] : cluster.pods()) {
    const std::optional<PodIdentity> id = parse_pod_name(job, name);
    if (!id || id->attempt != job.status.attempt || pod.deleting || has_ended(pod)) continue;
    const auto created = cluster.objects().created.find(name);
    if (created != cluster.objects().created.end() && created->second > 1) return "";
    has_unplaced = has_unplaced || !pod.scheduled;
    if (pod.scheduled_at && cluster.now() - *pod.scheduled_at < std::min<std::chrono::seconds>(limit, kPlacementTime))
      has_settled = false;
  }
  return has_unplaced && !has_settled ? "the group shrinks before the placement of its pods has settled" : "";
}

// Why and when the group may change its size, given the job at the time of the decision.
std::string check_resize(const SimCluster& cluster, const api::AttemptRecord& record, int nodes) {
  const Job& before = cluster.job();
  const SystemTime now = cluster.now();
  const api::Elastic& elastic = *before.spec.elastic;
  const api::GroupSize& was = *before.status.elastic;
  if (record.reason == kScaled) return nodes == before.spec.nodes ? "" : "the group is not scaled to spec.nodes";
  if (record.reason == kGrown) {
    if (nodes <= was.nodes || nodes != before.spec.nodes) return "the group does not grow to spec.nodes";
    const std::chrono::seconds wait(elastic.grow_after_seconds << was.failed_growths);
    return was.last_time && now - *was.last_time >= wait ? "" : "the group grows too early";
  }
  const std::chrono::seconds limit(elastic.shrink_after_seconds);
  const bool is_replaced = std::ranges::any_of(before.status.replacements,
                                               [&](const api::Replacement& lost) { return now - lost.time >= limit; });
  const bool has_waited = was.waiting_since && now - *was.waiting_since >= limit;
  if (nodes >= was.nodes) return "the group does not shrink";
  return has_waited || is_replaced ? check_settled(cluster) : "the group shrinks too early";
}

// All pods of an attempt have one size, within the bounds, which changes with the attempt and for a reason only.
std::string check_size(const SimCluster& cluster, const Job& after) {
  const Job& before = cluster.job();
  const api::Status& was = before.status;
  const api::Status& is = after.status;
  if (!after.spec.elastic || is.phase == Phase::kNone) return "";
  if (!is.elastic || is.elastic->attempt != is.attempt) return "an elastic job has no size";
  const int nodes = is.elastic->nodes;
  if (nodes < after.spec.elastic->min_nodes || nodes > after.spec.elastic->max_nodes.value_or(nodes))
    return "the size is outside its bounds";
  if (was.phase == Phase::kNone || was.phase == Phase::kSuspended) return "";
  if (is.attempt == was.attempt) {
    const Workload* workload = find_quota(cluster.objects());
    const bool has_pods = std::ranges::any_of(cluster.pods(), [&](const auto& item) {
      const std::optional<PodIdentity> id = parse_pod_name(before, item.first);
      return id && id->attempt == is.attempt;
    });
    const bool is_admitted = workload != nullptr && nodes == workload->admission.nodes;
    const bool is_partial = (is_admitted || cluster.objects().lost_workload) && !has_pods;
    return nodes == before.group_nodes() || is_partial ? "" : "the size changes within an attempt";
  }
  const bool is_resize = !is.attempts.empty() && ended_by_resize(is.attempts.back());
  if (is_resize && was.finished_ranks && was.finished_ranks->attempt == was.attempt)
    return "a group with a done rank changes its size";
  if (is_resize) return check_resize(cluster, is.attempts.back(), nodes);
  return nodes == before.group_nodes() || requests_scale(before) ? "" : "the size changes without a reason";
}

std::string check_conditions(const api::Status& is) {
  if (is.phase == Phase::kNone) return "";
  for (const api::Condition& condition : is.conditions) {
    const bool is_stopping = is.phase == Phase::kSuspended && condition.reason == "StoppingPods";
    if (condition.status != (condition.type == to_string(is.phase) && !is_stopping))
      return "a condition contradicts the phase";
  }
  return find_condition(is, is.phase) == nullptr ? "the phase has no condition" : "";
}

// Only a step ends a stall, because no move edits stallPolicy.
std::string check_stall(const api::Status& was, const api::Status& is) {
  const bool begins = is.phase == Phase::kStalled && was.phase != Phase::kStalled;
  if (begins && was.phase != Phase::kRunning) return "stalled without running";
  const bool resumes = is.phase == Phase::kRunning && was.phase == Phase::kStalled;
  // The first report after a start may have the same step.
  if (resumes && was.progress->last_step_time && is.progress->step == was.progress->step)
    return "a stall ends without a step";
  return "";
}

// An active job has the desired NetworkPolicy, and a finished job without live pods has none.
std::string check_policy(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const std::optional<NetworkPolicy>& policy = cluster.objects().network_policy;
  if (!cluster.objects().metrics_peers || job.metadata.deletion_timestamp || job.status.phase == Phase::kSuspended)
    return "";
  if (is_terminal(job.status.phase)) {
    const bool has_live_pods = std::ranges::any_of(cluster.pods(), [&](const auto& item) {
      return item.second.owner_uid == job.metadata.uid && !has_ended(item.second);
    });
    return policy && !has_live_pods ? "the NetworkPolicy exists without pods" : "";
  }
  if (!policy) return "an active job has no NetworkPolicy";
  return policy->digest == kEditedDigest ? "an active job has a NetworkPolicy that is not the desired one" : "";
}

// Returns whether the pod of a node rank is the one that its replacement replaces.
bool is_replaced(const Job& job, int node_rank, const Pod& pod) {
  const api::Replacement* lost = find_replacement(job, node_rank);
  return lost != nullptr && lost->pod_uid == pod.uid;
}

// A launcher has lost its connection, and rank 0 has not responded for long, or it has.
std::string check_disconnected_pods(const SimCluster& cluster) {
  const Job& job = cluster.job();
  if (!is_running(job.status.phase) || job.metadata.deletion_timestamp) return "";
  for (const auto& [name, pod] : cluster.pods()) {
    const std::optional<PodIdentity> id = parse_pod_name(job, name);
    const bool is_current = id && id->attempt == job.status.attempt && !is_replaced(job, id->node_rank, pod);
    if (is_current && is_disconnected(pod) && cluster.now() - *pod.trainer->finished_at > kDisconnectedGracePeriod)
      return "the group waits for a launcher that has left it";
  }
  return "";
}

// The launchers report that they continue without a lost pod, or the group restarts when its replacement is late.
std::string check_missing_nodes(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const std::chrono::seconds limit(job.spec.stall_policy.timeout_seconds);
  if (!launcher_bounds(job) || trains_with_fewer_nodes(job, cluster.objects()) || !is_running(job.status.phase) ||
      job.metadata.deletion_timestamp)
    return "";
  std::optional<SystemTime> last;
  for (const api::Replacement& lost : job.status.replacements) last = std::max(last.value_or(lost.time), lost.time);
  return last && cluster.now() - *last >= limit ? "the group waits for a pod although its launchers do not continue"
                                                : "";
}

// No pod of a new attempt is created while a pod of an attempt that was requested to stop is within its grace period.
std::string check_handover(const Plan& plan, const SimCluster& cluster) {
  const std::optional<int> stopped = cluster.objects().stopped_attempt;
  const bool creates = std::ranges::any_of(plan.actions, [&](const Action& action) {
    const auto* create = std::get_if<CreatePod>(&action);
    return create != nullptr && stopped && create->attempt > *stopped;
  });
  if (!creates) return "";
  for (const auto& [name, pod] : cluster.pods()) {
    const std::optional<PodIdentity> id = parse_pod_name(cluster.job(), name);
    if (!id || id->attempt != *stopped || pod.owner_uid != cluster.job().metadata.uid) continue;
    const bool has_time = !pod.grace_ends_at || cluster.now() < *pod.grace_ends_at;
    if (pod.phase == PodPhase::kRunning && !pod.trainer && has_time && !pod.unreachable)
      return "a pod is created while a pod that was requested to stop is within its grace period";
  }
  return "";
}

}  // namespace

bool replaces_disconnected_pod(const Action& action, const SimCluster& before) {
  const auto* patch = std::get_if<PatchStatus>(&action);
  const Job& job = before.job();
  if (patch == nullptr || patch->status.attempt != job.status.attempt) return false;
  return std::ranges::any_of(patch->status.replacements, [&](const api::Replacement& lost) {
    const auto pod = before.pods().find(pod_name(job, job.status.attempt, lost.node_rank));
    return pod != before.pods().end() && pod->second.uid == lost.pod_uid && is_disconnected(pod->second) &&
           !is_replaced(job, lost.node_rank, pod->second);
  });
}

std::string check_plan(const Plan& plan, const SimCluster& cluster) {
  if (std::string problem = check_handover(plan, cluster); !problem.empty()) return problem;
  if (std::string problem = check_release(plan, cluster); !problem.empty()) return problem;
  if (std::string problem = check_resumed_profile(plan, cluster); !problem.empty()) return problem;
  if (plan.actions.empty()) {
    if (std::string problem = check_disconnected_pods(cluster); !problem.empty()) return problem;
    return check_missing_nodes(cluster);
  }
  const Job& job = cluster.job();
  const Objects& objects = cluster.objects();
  const auto first = objects.pods.find(pod_name(job, job.status.attempt, 0));
  const bool has_rank_0 = first != objects.pods.end() && first->second.phase == PodPhase::kRunning;
  if (!has_rank_0 && std::ranges::any_of(plan.actions, [&](const Action& action) {
        return replaces_disconnected_pod(action, cluster);
      }))
    return "the pod of a disconnected launcher is replaced, although rank 0 has ended";
  if (job.spec.suspend || job.metadata.deletion_timestamp || requests_scale(job) ||
      !trains_with_fewer_nodes(job, objects))
    return "";
  for (int rank = 0; rank < job.group_nodes(); ++rank) {
    const auto found = objects.pods.find(pod_name(job, job.status.attempt, rank));
    const bool is_lost = find_replacement(job, rank) != nullptr;
    if (found == objects.pods.end()) {
      if (!is_lost) return "";
      continue;
    }
    // A new failure, or a pod that could not join the others, may restart the group.
    const Pod& pod = found->second;
    const bool is_old = is_replaced(job, rank, pod);
    // The budget may not suffice for a replacement.
    const bool is_disconnected_only =
        is_disconnected(pod) && !pod.deleting && used_restarts(job.status) < job.spec.failure_policy.max_restarts;
    if (!is_old && !is_disconnected_only && (pod.deleting || has_ended(pod))) return "";
    if (!objects.service || objects.service->regroup_key != pod.regroup_key) return "";
  }
  if (!objects.service) return "";
  for (const Action& action : plan.actions) {
    const auto* patch = std::get_if<PatchStatus>(&action);
    if (patch != nullptr && patch->status.attempt != job.status.attempt)
      return "a group that continues with fewer nodes restarts";
  }
  return "";
}

// Returns whether the pending time-out has passed since the creation of the first pod of the attempt.
bool is_due(const SimCluster& cluster) {
  const Job& job = cluster.job();
  SystemTime first = cluster.now();
  for (int rank = 0; rank < job.group_nodes(); ++rank) {
    const auto found = cluster.pods().find(pod_name(job, job.status.attempt, rank));
    if (found != cluster.pods().end()) first = std::min(first, found->second.created.value_or(first));
  }
  return cluster.now() - first >= std::chrono::seconds(job.spec.scheduling.pending_timeout_seconds.value_or(0));
}

// A group that cannot be placed keeps its pods for the time-out only.
std::string check_released(const SimCluster& cluster) {
  const Job& job = cluster.job();
  const bool waits = job.status.phase == Phase::kPending || job.status.phase == Phase::kRestarting;
  if (!job.spec.scheduling.pending_timeout_seconds || !waits || job.metadata.deletion_timestamp ||
      job.status.finished_ranks || job.spec.elastic)
    return "";
  int placed = 0;
  for (int rank = 0; rank < job.group_nodes(); ++rank) {
    const auto found = cluster.pods().find(pod_name(job, job.status.attempt, rank));
    if (found == cluster.pods().end()) continue;
    if (found->second.avoided) return "";  // check_waiting_pods()
    placed += found->second.scheduled ? 1 : 0;
  }
  return placed < job.group_nodes() && is_due(cluster) ? "a group that cannot be placed keeps its pods" : "";
}

std::string check_at_rest(const World& world, const SimCluster& cluster) {
  if (std::string problem = check_pod_groups(cluster); !problem.empty()) return problem;
  if (std::string problem = check_quota(cluster); !problem.empty()) return problem;
  if (std::string problem = check_policy(cluster); !problem.empty()) return problem;
  if (std::string problem = check_waiting_pods(cluster); !problem.empty()) return problem;
  if (std::string problem = check_released(cluster); !problem.empty()) return problem;
  const api::Status& status = cluster.job().status;
  const bool has_done_rank = world.done != 0 || status.finished_ranks;
  if (!is_terminal(status.phase) && !cluster.job().metadata.deletion_timestamp && !has_done_rank &&
      status.phase != Phase::kSuspended && requests_scale(cluster.job()))
    return "a request to scale is ignored";
  if (!is_running(status.phase) || cluster.job().metadata.deletion_timestamp) return "";
  const std::optional<RankStatus>& reported = cluster.objects().reported;
  if (reported && reported->attempt == status.attempt && (!status.progress || status.progress->step != reported->step))
    return "the step is not the one that rank 0 reported";
  const bool is_stalled = status.phase == Phase::kStalled;
  const api::StallPolicy& policy = cluster.job().spec.stall_policy;
  if (reported && reported->attempt == status.attempt && !status.progress->last_step_time)
    return "the time of the last step is missing";
  if (!status.progress || (!status.progress->last_step_time && status.progress->step == 0))
    return is_stalled ? "stalled although the program may report no steps" : "";
  const bool starts = !status.progress->last_step_time;
  const std::chrono::seconds timeout(starts ? policy.start_timeout_seconds : policy.timeout_seconds);
  if (is_stalled && world.ticks_without_step * Worlds::kTick < timeout) return "stalled too early";
  if (is_stalled && policy.action == api::StallAction::kRestart) return "a stalled group does not restart";
  const auto waited = starts
                          ? world.ticks_without_step * Worlds::kTick
                          : std::chrono::floor<std::chrono::seconds>(cluster.now() - *status.progress->last_step_time);
  if (!is_stalled && waited >= timeout) return "not stalled although the step does not change";
  return "";
}

std::string check_action(const Action& action, const World& world, const SimCluster& before, const SimCluster& after) {
  if (std::string problem = check_profiles(before, after); !problem.empty()) return problem;
  if (const auto* create = std::get_if<CreatePod>(&action)) return check_creation(*create, before);
  if (const auto* remove = std::get_if<DeletePod>(&action)) return check_deletion(*remove, before);
  const api::Status& was = before.job().status;
  if (std::holds_alternative<DeleteService>(action))
    return is_terminal(was.phase) ? "" : "the Service of an active job is deleted";
  if (std::holds_alternative<DeleteNetworkPolicy>(action))
    return is_terminal(was.phase) ? "" : "the NetworkPolicy of an active job is deleted";
  if (std::holds_alternative<DeleteJob>(action)) return is_terminal(was.phase) ? "" : "an active job is deleted";
  if (!std::holds_alternative<PatchStatus>(action)) return "";
  const api::Status& is = after.job().status;
  if (is.restarts.total != was.restarts.total && !is.attempts.empty() && ended_unplaced(is.attempts.back()) &&
      !is_due(before))
    return "a group is deleted before its pending time-out";
  for (const std::string& problem :
       {check_counts(was, is, after.job(), world), check_end(before, is, after.job(), world),
        check_finished(before.job(), after.job(), world), check_replacements(before.job(), after.job(), world),
        check_conditions(is), check_stall(was, is), check_size(before, after.job()), check_budget(before, is),
        check_bad_nodes(before, is, world.has_failed)}) {
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace oarlock::test
