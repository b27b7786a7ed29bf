#include "operator/core/queue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "operator/core/elastic.h"
#include "operator/core/handover.h"
#include "operator/core/lifetime.h"
#include "operator/core/pod_failure.h"
#include "operator/core/progress.h"
#include "operator/core/text.h"
#include "operator/core/workload.h"

namespace oarlock::control {

using api::Phase;
using std::chrono::seconds;

namespace {

// No watch reports that Kueue was installed.
constexpr seconds kUnavailableRequeue{30};
// While Kueue's Workloads are read for the first time.
constexpr seconds kReadingRequeue{1};

// In the message of an attempt that the queue has ended, precedes Kueue's reason.
constexpr char kNotAdmitted[] = " does not admit the job any more: ";
// Reasons of Kueue's condition Evicted. One that begins with Deactivated may continue with the cause.
constexpr const char* kEvictionReasons[] = {"Preempted",           "PodsReadyTimeout",  "AdmissionCheck",
                                            "ClusterQueueStopped", "LocalQueueStopped", "NodeFailures",
                                            "Deactivated",         "FlavorMigration"};

// Whether the Workload cannot admit the job any more, so that another one must replace it. While quota is reserved, its
// podSets are immutable.
bool is_outdated(const Job& job, const Workload& workload) {
  if (workload.finished) return true;
  if (workload.has_quota) return job.group_nodes() > workload.nodes;
  // A Workload for a growth has no minimum. Another one in its place would not have the back-off of an eviction, and
  // would be active although an administrator has deactivated this one.
  if (workload_slice(job, workload.name) != 1) return !workload.evicted || workload.requeued;
  const bool is_moved = !job.metadata.queue.empty() && job.metadata.queue != workload.queue;
  return is_moved || workload.nodes != wanted_nodes(job);
}

CreateWorkload make_workload(const Job& job) {
  const std::string& label = job.metadata.queue;
  CreateWorkload out{workload_name(job), label.empty() ? job.status.queue->name : label, wanted_nodes(job)};
  if (job.spec.elastic && job.spec.elastic->min_nodes < out.nodes) out.min_nodes = job.spec.elastic->min_nodes;
  return out;
}

// Deletes the Workload unless Kueue has admitted it in the meantime.
DeleteWorkload delete_unchanged(const Workload& workload) {
  return {workload.name, workload.uid, workload.finished ? "" : workload.resource_version};
}

std::vector<Action> delete_other_workloads(const Observed& observed, const Membership& members) {
  std::vector<Action> out;
  for (const Workload* other : members.other_workloads) {
    const bool is_used = other->has_quota && !other->finished && find_suspending(members, observed.now).count > 0;
    if (!other->deleting && !is_used) out.emplace_back(delete_unchanged(*other));
  }
  return out;
}

// Returns why the Workload does not admit the job: the message of Kueue, such as that of its condition QuotaReserved.
std::string explanation(const Workload& workload) {
  if (workload.deleting) return "its Workload is being deleted";
  if (workload.finished) return "its Workload is marked as finished";
  if (workload.message.empty()) return workload.reason;
  return workload.reason.empty() ? workload.message : fmt::format("{}: {}", workload.reason, workload.message);
}

}  // namespace

bool may_have_queue(const Job& job) { return job.status.queue || !job.metadata.queue.empty(); }

bool is_reading_workloads(const Observed& observed) {
  return may_have_queue(observed.job) && !observed.workloads && observed.workloads_error.empty();
}

BoxedOptional<api::QueueStatus> decide_queue(const Job& job) {
  BoxedOptional<api::QueueStatus> out;
  if (job.metadata.queue.empty()) return out;
  out.emplace().name = job.metadata.queue;
  if (!job.spec.is_managed_by_multikueue()) out->workload = job.metadata.prebuilt_workload;
  return out;
}

// An older CRD drops status.queue. A job that has not started, or has its Workload, then has the queue of its label.
std::optional<Observed> decide_about_queue(const Observed& observed) {
  const Job& job = observed.job;
  if (job.metadata.queue.empty() || job.status.queue || is_terminal(job.status.phase) || !job.report.problem.empty())
    return std::nullopt;
  const bool has_started = job.status.start_time ||
                           std::ranges::find(observed.pods, job.metadata.uid, &Pod::owner_uid) != observed.pods.end();
  const bool has_workload =
      observed.workloads && std::ranges::any_of(*observed.workloads, [&](const Workload& workload) {
        return workload_slice(job, workload.name).has_value();
      });
  if (has_started && !has_workload) return std::nullopt;
  Observed out = observed;
  out.job.status.queue = decide_queue(job);
  return out;
}

const Admission* find_admission(const Membership& members) {
  const Workload* workload = members.workload;
  const bool is_whole = workload != nullptr && admits_pods(*workload) &&
                        workload->admission.nodes >= static_cast<int>(members.current.size());
  return is_whole ? &workload->admission : nullptr;
}

ConfirmWorkloadUnchanged confirm_admission(const Membership& members) {
  return {members.workload->name, members.workload->resource_version};
}

bool is_waiting_for_queue(const Observed& observed, const Membership& members) {
  return observed.job.status.queue && find_admission(members) == nullptr;
}

WaitingReason queue_reason(const Observed& observed, const Membership& members) {
  const std::string& name = observed.job.status.queue->name;
  if (!observed.workloads) {
    return {kQueueUnavailable,
            fmt::format("queue {}: the Workloads of Kueue cannot be read: {}; install Kueue with the API {}/{}, or "
                        "suspend the job, remove its label {} and resume it",
                        name, sanitize_line(observed.workloads_error), kKueueGroup, kKueueVersion, kLabelQueue)};
  }
  const std::string prebuilt = prebuilt_workload(observed.job);
  if (members.workload == nullptr && !prebuilt.empty())
    return {kQueued, fmt::format("queue {}: waiting for MultiKueue to create the Workload {}", name, prebuilt)};
  if (members.workload == nullptr) return {kQueued, fmt::format("queue {}: requesting quota", name)};
  const Workload& workload = *members.workload;
  if (!prebuilt.empty() && observed.job.group_nodes() > workload.nodes)
    return {kQueued,
            fmt::format("queue {}: the Workload {} that MultiKueue has created is for {} nodes, and the job has {}",
                        workload.queue, prebuilt, workload.nodes, observed.job.group_nodes())};
  const std::string why = explanation(workload);
  return {kQueued, fmt::format("queue {}: {}", workload.queue, why.empty() ? "waiting for Kueue" : why)};
}

void refresh_queue(const Observed& observed, const Membership& members, api::Status& status) {
  if (!status.queue || !observed.workloads) return;
  // The pods of a job whose Workload is missing are still those of the last admission.
  if (members.workload == nullptr && is_running(status.phase)) return;
  api::QueueStatus next = *status.queue;
  const Admission* admission = find_admission(members);
  if (members.workload != nullptr) next.name = members.workload->queue;
  if (!next.since || (admission != nullptr) == next.cluster_queue.empty())
    next.since = std::chrono::floor<seconds>(observed.now);
  next.cluster_queue = admission != nullptr ? admission->cluster_queue : "";
  next.flavors = admission != nullptr ? admission->flavors : std::vector<std::string>();
  next.nodes = admission != nullptr ? std::optional(admission->nodes) : std::nullopt;
  status.queue = std::move(next);
}

Creations request_quota(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  Creations out;
  if (!observed.workloads) {
    out.requeue_after = kUnavailableRequeue;
    return out;
  }
  const Workload* workload = members.workload;
  out.actions = delete_other_workloads(observed, members);
  if (!members.other_workloads.empty() || !prebuilt_workload(job).empty()) return out;
  if (workload != nullptr && (workload->deleting || !is_outdated(job, *workload))) return out;
  // Pods that have not ended use the quota. Those of a running group have had it.
  const StoppingPods stopping = find_suspending(members, observed.now);
  if (workload == nullptr && (stopping.count == 0 || has_pods(members))) {
    out.actions.emplace_back(make_workload(job));
  } else if (stopping.count > 0) {
    out.requeue_after = stopping.wait;
  } else {
    out.actions.emplace_back(DeleteWorkload{workload->name, workload->uid});
  }
  return out;
}

std::vector<Action> request_growth(const Observed& observed, const Membership& members, bool may_create) {
  const Job& job = observed.job;
  if (!job.status.queue || find_admission(members) == nullptr || !prebuilt_workload(job).empty()) return {};
  const Workload& current = *members.workload;
  const int wanted = wanted_nodes(job);
  // Kueue does not let Workloads with a topology take over quota. With admission checks, it takes the quota of the
  // first one before the checks of the second one are complete.
  const bool may_wait = wanted > current.admission.nodes && !current.admission.has_topology && !current.has_checks &&
                        !has_done_rank(job, members);
  const int slice = *workload_slice(job, current.name);
  std::vector<Action> out;
  for (const Workload* other : members.other_workloads) {
    const bool is_earlier = *workload_slice(job, other->name) < slice;
    const bool fits = other->nodes == wanted && other->queue == current.queue && !other->finished && !other->evicted;
    if (!is_earlier && may_wait && fits && !other->has_checks) return {};
    if (!other->deleting) out.emplace_back(delete_unchanged(*other));
  }
  if (may_create && members.other_workloads.empty() && may_wait && may_grow_to(observed, wanted))
    out.emplace_back(CreateWorkload{
        .name = workload_name(job, slice + 1), .queue = current.queue, .nodes = wanted, .replaces = current.name});
  return out;
}

std::vector<Action> report_readiness(const Observed& observed, const Membership& members, const api::Status& next) {
  const Workload* workload = members.workload;
  if (workload == nullptr || !admits_pods(*workload) || workload->pods_ready == is_running(next.phase)) return {};
  const auto change = is_running(next.phase) ? UpdateWorkload::Change::kReady : UpdateWorkload::Change::kNotReady;
  return {UpdateWorkload{workload->name, workload->uid, change, observed.now}};
}

std::vector<Action> finish_workload(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const Workload* workload = members.workload;
  std::vector<Action> out = delete_other_workloads(observed, members);
  if (workload == nullptr || workload->finished || workload->deleting) return out;
  if (find_suspending(members, observed.now).count > 0) return out;
  const bool has_failed = job.status.phase == Phase::kFailed;
  const api::Condition* end = find_condition(job.status, job.status.phase);
  out.emplace_back(UpdateWorkload{workload->name, workload->uid,
                                  has_failed ? UpdateWorkload::Change::kFail : UpdateWorkload::Change::kSucceed,
                                  observed.now, end == nullptr ? "" : end->message});
  return out;
}

std::vector<Action> delete_workload(const Observed& observed, const Membership& members) {
  const Workload* workload = members.workload;
  std::vector<Action> out = delete_other_workloads(observed, members);
  if (workload == nullptr || workload->deleting || find_suspending(members, observed.now).count > 0) return out;
  out.emplace_back(DeleteWorkload{workload->name, workload->uid});
  return out;
}

namespace {

// Whether the pods of the attempt were created for another admission.
bool has_changed(const api::QueueStatus& queue, const Admission& admission) {
  return !queue.cluster_queue.empty() &&
         (queue.cluster_queue != admission.cluster_queue || queue.flavors != admission.flavors);
}

Plan release_quota(const Workload& workload, SystemTime now) {
  Plan plan = make_plan(PlanState::kProgress, "the evicted job has no pods: releasing its quota");
  plan.actions.emplace_back(UpdateWorkload{workload.name, workload.uid, UpdateWorkload::Change::kRelease, now});
  return plan;
}

// The status of a job that has no copy in another cluster. It replaces that of a copy which was deleted.
api::Status status_in_manager(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  api::Status next;
  next.observed_generation = job.metadata.generation;
  next.conditions = job.status.conditions;
  next.queue = job.status.queue;
  refresh_queue(observed, members, next);
  if (job.spec.suspend) {
    enter_phase(next, Phase::kSuspended, "Suspended", "spec.suspend is true", observed.now);
  } else {
    const WaitingReason why = queue_reason(observed, members);
    enter_phase(next, Phase::kPending, why.reason, why.message, observed.now);
  }
  next.usage = job.status.usage;
  next.startup = job.status.startup;
  next.nodes = {.desired = job.spec.nodes, .summary = fmt::format("0/{}", job.spec.nodes)};
  return next;
}

}  // namespace

std::optional<Plan> obey_queue(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const bool has_group = has_pods(members) || is_running(job.status.phase);
  if (is_reading_workloads(observed) && !has_group)
    return make_plan(PlanState::kWait, "reading the Workloads of Kueue", kReadingRequeue);
  if (!job.status.queue) return std::nullopt;
  if (members.workload == nullptr) return std::nullopt;
  const Workload& workload = *members.workload;
  const Admission* admission = find_admission(members);
  if (!has_group) {
    const bool must_release = workload.evicted && workload.has_quota && !workload.deleting;
    if (!must_release || find_suspending(members, observed.now).count > 0) return std::nullopt;
    return release_quota(workload, observed.now);
  }
  if ((admission != nullptr && !has_changed(*job.status.queue, *admission)) || !has_next_attempt(job))
    return std::nullopt;
  const std::string message =
      admission != nullptr ? fmt::format("the queue {} admits the job with other flavors: {}", workload.queue,
                                         fmt::join(admission->flavors, ", "))
                           : fmt::format("the queue {}{}{}", workload.queue, kNotAdmitted, explanation(workload));
  api::Status next = refresh_status(observed, members);
  apply_termination_message(members, next, observed.now);
  stop_attempt(observed, members, kQueueEvicted, message, next);
  carry_group_size(job, observed.now, next);
  const std::string summary =
      fmt::format("{}; attempt {} waits for a new admission, and does not count as a restart", message, next.attempt);
  return start_attempt(observed, next, {confirm_admission(members)},
                       {make_event(EmitEvent::Type::kWarning, "QueueEvicted", "StopPods", summary)}, message);
}

std::optional<Plan> fit_to_admission(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const Workload* workload = members.workload;
  const bool can_start = job.status.queue && workload != nullptr && admits_pods(*workload) && !has_pods(members) &&
                         can_create_pods(job.status.phase);
  if (!can_start || !job.spec.elastic || !job.status.elastic || is_outdated(job, *workload)) return std::nullopt;
  const int nodes = workload->admission.nodes;
  if (nodes < 1 || nodes >= job.group_nodes()) return std::nullopt;
  const std::string message =
      fmt::format("the queue {} has admitted {} of {} nodes", workload->queue, nodes, job.group_nodes());
  api::Status next = refresh_status(observed, members);
  set_group_size(job, {nodes, kShrunk, message}, observed.now, next);
  // An earlier admission must not reduce a group that has grown since.
  return start_attempt(observed, next, {confirm_admission(members)},
                       {make_event(EmitEvent::Type::kNormal, "PartiallyAdmitted", "CreatePods", message)}, message);
}

std::optional<Plan> queue_for_multikueue(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  if (!job.spec.is_managed_by_multikueue() || !job.status.queue || job.metadata.deletion_timestamp ||
      !job.report.problem.empty())
    return std::nullopt;
  if (is_terminal(job.status.phase)) return expire(observed, members);
  if (is_reading_workloads(observed))
    return make_plan(PlanState::kWait, "reading the Workloads of Kueue", kReadingRequeue);
  const Workload* workload = members.workload;
  if (workload != nullptr && workload->finished) return std::nullopt;
  const bool has_quota = workload != nullptr && workload->has_quota;
  if (has_quota && workload->evicted && !workload->deleting) return release_quota(*workload, observed.now);
  Plan plan = make_plan(PlanState::kWait, "MultiKueue runs the job in another cluster once its queue has admitted it");
  if (job.spec.suspend) {
    plan.actions = delete_workload(observed, members);
  } else {
    Creations request = request_quota(observed, members);
    plan.actions = std::move(request.actions);
    plan.requeue_after = request.requeue_after;
    append(plan.actions, report_readiness(observed, members, job.status));
  }
  // A job that runs has a copy, also if its Workload cannot be read here.
  const bool may_have_copy = !observed.workloads && is_running(job.status.phase);
  if (job.spec.suspend || (!has_quota && !may_have_copy)) {
    const api::Status next = status_in_manager(observed, members);
    if (next != job.status) plan.actions.emplace_back(PatchStatus{next});
  }
  if (!plan.actions.empty()) plan.state = PlanState::kProgress;
  return plan;
}

bool ended_by_queue(const api::AttemptRecord& record) { return record.pod.empty() && record.reason == kQueueEvicted; }

const char* eviction_reason(const api::AttemptRecord& record) {
  const size_t mark = record.message.find(kNotAdmitted);
  if (mark == std::string::npos) return "Other";
  const std::string_view why = std::string_view(record.message).substr(mark + sizeof kNotAdmitted - 1);
  const auto found =
      std::ranges::find_if(kEvictionReasons, [&](const char* reason) { return why.starts_with(reason); });
  return found == std::end(kEvictionReasons) ? "Other" : *found;
}

}  // namespace oarlock::control
