#include "operator/core/lifetime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/profile.h"
#include "common/text.h"
#include "operator/core/gang.h"
#include "operator/core/handover.h"
#include "operator/core/launcher_injection.h"
#include "operator/core/ledger.h"
#include "operator/core/pods.h"
#include "operator/core/profile.h"
#include "operator/core/progress.h"
#include "operator/core/queue.h"
#include "operator/core/status.h"
#include "operator/core/text.h"
#include "operator/core/workload.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxListedFields = 10;
constexpr size_t kMessageLimit = 1000;

std::string unreadable_message(const Job& job) {
  return sanitize_line(
      fmt::format("{}; the operator ignores the job until the object is changed or an operator that can read it runs",
                  sanitize_line(job.report.problem, kMessageLimit / 2)),
      kMessageLimit);
}

std::string unknown_message(const Job& job) {
  const std::vector<std::string>& all = job.report.unknown;
  const size_t shown = std::min(all.size(), kMaxListedFields);
  std::string text = fmt::format("this version of the operator ignores {}",
                                 fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (all.size() > shown) text += fmt::format(" and {} more", all.size() - shown);
  return sanitize_line(text + "; remove them, or run the version that wrote them", kMessageLimit);
}

Plan patch_conditions(PlanState state, const Job& job, std::vector<api::Condition> conditions) {
  Plan plan = make_plan(state, "the conditions Unreadable or UnknownFields changed");
  api::Status status = job.status;
  status.conditions = std::move(conditions);
  plan.actions.emplace_back(PatchStatus{.status = std::move(status), .conditions_only = true});
  return plan;
}

}  // namespace

std::optional<Plan> report_unreadable(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  if (job.report.problem.empty()) return std::nullopt;
  const std::string message = unreadable_message(job);
  const EmitEvent warning = make_event(EmitEvent::Type::kWarning, api::kConditionUnreadable, "Ignore", message);
  std::vector<api::Condition> conditions = job.status.conditions;
  Plan plan = make_plan(PlanState::kBlocked, message);
  if (!job.report.has_conditions) {  // a patch would remove the conditions that were not read
    plan.actions.emplace_back(warning);
  } else if (set_condition(conditions, api::kConditionUnreadable, "InvalidObject", message, observed.now)) {
    plan = patch_conditions(PlanState::kBlocked, job, std::move(conditions));
    plan.actions.emplace_back(warning);
  }
  plan.reason = message;
  return plan;
}

std::optional<Plan> report_unknown_fields(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  const std::string message = job.report.unknown.empty() ? "" : unknown_message(job);
  std::vector<api::Condition> conditions = job.status.conditions;
  const bool was_unreadable = set_condition(conditions, api::kConditionUnreadable, "", "", observed.now);
  const bool has_changed =
      set_condition(conditions, api::kConditionUnknownFields, "NewerVersion", message, observed.now);
  if (!was_unreadable && !has_changed) return std::nullopt;
  Plan plan = patch_conditions(PlanState::kProgress, job, std::move(conditions));
  if (has_changed && !message.empty())
    plan.actions.emplace_back(make_event(EmitEvent::Type::kWarning, api::kConditionUnknownFields, "Ignore", message));
  return plan;
}

using api::Phase;
using std::chrono::seconds;

namespace {

// Whether pods of the job have existed. The first pods are created before there is a status.
bool has_started(const Job& job, const Membership& members) { return job.status.start_time || has_pods(members); }

// Changes the phase of a refreshed status to Suspended.
void enter_suspended(const Job& job, bool started, SystemTime now, api::Status& next) {
  enter_phase(next, Phase::kSuspended, "Suspended", "spec.suspend is true", now);
  if (!started) next.start_time.reset();
  if (!job.status.attempt_start_time) next.attempt_start_time.reset();
  next.nodes = {.desired = job.spec.nodes, .summary = fmt::format("0/{}", job.spec.nodes)};
  if (next.elastic) next.elastic->waiting_since.reset();
}

constexpr char kStoppingPods[] = "StoppingPods";

// Whether the job is in phase Suspended, and its pods still end.
bool is_stopping(const api::Status& status) {
  const api::Condition* condition = find_condition(status, Phase::kSuspended);
  return status.phase == Phase::kSuspended && condition != nullptr && !condition->status;
}

// Whether the job was resumed, but did not start because of its profile.
bool is_blocked(const api::Status& status) {
  const api::Condition* condition = find_condition(status, Phase::kSuspended);
  return condition != nullptr &&
         (condition->reason == api::kProfileNotFound || condition->reason == api::kInvalidProfile);
}

// Returns when the suspension began. REQUIRES: the phase is Suspended, and is_stopping() or no pod is left.
SystemTime suspended_since(const api::Status& status, SystemTime now) {
  const api::Condition* condition = find_condition(status, Phase::kSuspended);
  return condition == nullptr ? now : condition->last_transition_time;
}

// Makes the condition Suspended false while pods end, and true when they have.
void set_stopping(int pods, SystemTime now, api::Status& next) {
  if (pods == 0) {
    if (is_stopping(next)) enter_phase(next, Phase::kSuspended, "Suspended", "spec.suspend is true", now);
    return;
  }
  for (api::Condition& condition : next.conditions) {
    if (condition.type != to_string(Phase::kSuspended)) continue;
    condition.status = false;
    condition.reason = kStoppingPods;
    condition.message = fmt::format("{} still running, to save a checkpoint within the grace period",
                                    pods == 1 ? "1 pod is" : fmt::format("{} pods are", pods));
  }
}

}  // namespace

namespace {

// A job was resumed while its pods still end. The patch is a fence for the deletions, as in suspend().
Plan wait_to_resume(const Observed& observed, const Membership& members, const StoppingPods& stopping) {
  api::Status next = refresh_status(observed, members);
  set_stopping(stopping.count, observed.now, next);
  Deletions live = delete_live_pods(observed, members, "the job was suspended", suspended_since(next, observed.now));
  Plan plan = make_plan(PlanState::kWait, "resumed: waiting for the pods that were stopped",
                        earliest(live.requeue_after, stopping.wait));
  if (next != observed.job.status || !live.actions.empty()) {
    plan.state = PlanState::kProgress;
    plan.actions.emplace_back(PatchStatus{std::move(next)});
  }
  append(plan.actions, std::move(live.actions));
  return plan;
}

}  // namespace

std::optional<SystemTime> deadline(const Job& job) {
  const api::Status& status = job.status;
  const bool is_active = status.phase != Phase::kNone && status.phase != Phase::kSuspended &&
                         !is_terminal(status.phase) && !job.metadata.deletion_timestamp;
  if (!job.spec.active_deadline_seconds || !is_active || !status.start_time) return std::nullopt;
  const api::Condition* suspended = find_condition(status, Phase::kSuspended);
  SystemTime since = suspended == nullptr ? *status.start_time : suspended->last_transition_time;
  if (status.queue) {
    if (status.queue->cluster_queue.empty()) return std::nullopt;
    since = std::max(since, status.queue->since.value_or(since));
  }
  return since + clamp_period(*job.spec.active_deadline_seconds);
}

std::optional<SystemTime> expiry(const Job& job) {
  if (!job.spec.ttl_seconds_after_finished || !is_terminal(job.status.phase) || !job.status.completion_time)
    return std::nullopt;
  return *job.status.completion_time + clamp_period(*job.spec.ttl_seconds_after_finished);
}

std::optional<Plan> skip_managed_elsewhere(const Observed& observed, const Membership&) {
  if (!observed.job.spec.is_managed_elsewhere()) return std::nullopt;
  return make_plan(PlanState::kComplete, fmt::format("{} manages the job", observed.job.spec.managed_by));
}

std::optional<Plan> skip_deleting(const Observed& observed, const Membership&) {
  if (!observed.job.metadata.deletion_timestamp) return std::nullopt;
  return make_plan(PlanState::kComplete, "the job is being deleted; the garbage collector deletes its objects");
}

std::optional<Plan> expire(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  const std::optional<SystemTime> end = expiry(job);
  if (!end || observed.now < *end) return std::nullopt;
  if (!prebuilt_workload(job).empty()) return std::nullopt;  // MultiKueue deletes it, or would create it again
  Plan plan = make_plan(PlanState::kComplete,
                        fmt::format("ttlSecondsAfterFinished ({} s) has passed", *job.spec.ttl_seconds_after_finished));
  plan.actions.emplace_back(DeleteJob{job.metadata.name, job.metadata.uid, job.metadata.resource_version});
  return plan;
}

// A terminal phase is permanent: only leftover objects are deleted.
std::optional<Plan> clean_up_finished(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  if (!is_terminal(status.phase)) return std::nullopt;
  Plan plan = make_plan(PlanState::kComplete, "the job has ended");
  if (status.observed_generation != observed.job.metadata.generation || is_usage_due(observed, members)) {
    api::Status next = status;
    next.observed_generation = observed.job.metadata.generation;
    if (status.usage) next.usage = account_usage(observed, members, next);
    plan.actions.emplace_back(PatchStatus{std::move(next)});
  }
  Deletions leftovers = delete_leftovers(observed, members, status.completion_time.value_or(observed.now));
  append(plan.actions, std::move(leftovers.actions));
  append(plan.actions, finish_workload(observed, members));
  append(plan.actions, delete_pod_groups(observed, members));
  plan.requeue_after = earliest(leftovers.requeue_after, time_until(expiry(observed.job), observed.now));
  if (members.workload != nullptr && !members.workload->finished)
    plan.requeue_after = earliest(plan.requeue_after, find_suspending(members, observed.now).wait);
  return plan;
}

// Deletes the pods of a job with spec.suspend. The phase is Suspended immediately, so that a resume in the meantime is
// not mistaken for a failure; the condition becomes true when the pods are gone.
std::optional<Plan> suspend(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  if (!observed.job.spec.suspend) return std::nullopt;
  const bool is_new = status.phase != Phase::kSuspended;
  const bool started = has_started(observed.job, members);
  api::Status next = refresh_status(observed, members);
  if (!next.start_time && started) next.start_time = std::chrono::floor<seconds>(observed.now);
  if (is_new) enter_suspended(observed.job, started, observed.now, next);
  if (is_blocked(next)) enter_phase(next, Phase::kSuspended, "Suspended", "spec.suspend is true", observed.now);
  const SystemTime since = suspended_since(next, observed.now);
  const StoppingPods stopping = find_suspending(members, observed.now);
  if (is_new || is_stopping(next)) set_stopping(stopping.count, observed.now, next);
  Deletions live = delete_live_pods(observed, members, "the job is suspended", since);
  append(live.actions, delete_workload(observed, members));
  append(live.actions, delete_pod_groups(observed, members));
  const bool waits = is_stopping(next) || members.workload != nullptr;
  Plan plan = make_plan(PlanState::kWait, "the job is suspended",
                        earliest(live.requeue_after, waits ? stopping.wait : std::nullopt));
  // The patch is also a fence: a job that was created suspended has the same attempt after its resume.
  if (next != status || !live.actions.empty()) plan.actions.emplace_back(PatchStatus{next});
  if (is_new) {
    plan.actions.emplace_back(
        make_event(EmitEvent::Type::kNormal, "Suspended", "DeletePods", "spec.suspend is true: deleting the pods"));
  }
  append(plan.actions, std::move(live.actions));
  if (!plan.actions.empty()) plan.state = PlanState::kProgress;
  return plan;
}

// Starts a new attempt, which is not counted as a restart, once the pods of the last one have ended.
std::optional<Plan> resume(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  if (job.status.phase != Phase::kSuspended) return std::nullopt;
  api::Status next = job.status;
  if (is_stopping(next)) {
    if (const StoppingPods stopping = find_suspending(members, observed.now); stopping.count > 0)
      return wait_to_resume(observed, members, stopping);
    set_stopping(0, observed.now, next);  // the deadline counts from the resume
  }
  if (std::optional<Plan> plan = apply_profile(observed, members)) return plan;
  // The spec may have changed, so the resumed job requests its quota again.
  if (is_reading_workloads(observed))
    return make_plan(PlanState::kWait, "resumed: reading the Workloads of Kueue", kStaleCacheRequeue);
  if (std::vector<Action> workload = delete_workload(observed, members); !workload.empty()) {
    Plan plan = make_plan(PlanState::kProgress, "resumed: deleting the Workload from before the suspension");
    plan.actions.emplace_back(ConfirmJobUnchanged{});
    append(plan.actions, std::move(workload));
    return plan;
  }
  // Pods of the previous attempt may still exist under its names.
  if (next.start_time && has_next_attempt(job)) ++next.attempt;
  next.elastic.reset();  // the spec may have changed meanwhile; the attempt begins with all nodes
  next.attempt_start_time.reset();
  next.launcher = decide_launcher(job, observed.launcher_image);
  next.queue = decide_queue(job);
  // The steps may have another meaning now, so that the first one is progress. The count remains.
  if (auto& last = next.restarts.after_progress) last = api::AfterProgress{.count = last->count};
  next.highest_progress.reset();
  enter_phase(next, Phase::kPending, "PodsStarting", "", observed.now);
  update_checkpoint_condition(job, next, observed.now);  // the spec may have changed meanwhile
  const std::string message =
      fmt::format("spec.suspend is false: starting {} as attempt {}", counted(job.spec.nodes, "pod"), next.attempt);
  return start_attempt(observed, next, {}, {make_event(EmitEvent::Type::kNormal, "Resumed", "CreatePods", message)},
                       message);
}

std::optional<Plan> enforce_deadline(const Observed& observed, const Membership& members) {
  const std::optional<SystemTime> end = deadline(observed.job);
  if (!end || observed.now < *end) return std::nullopt;
  api::Status next = refresh_status(observed, members);
  apply_termination_message(members, next, observed.now);
  const std::string message = fmt::format("the job was active for longer than activeDeadlineSeconds ({} s)",
                                          *observed.job.spec.active_deadline_seconds);
  enter_phase(next, Phase::kFailed, "DeadlineExceeded", message, observed.now);
  return finish_job(observed, members, next, {},
                    make_event(EmitEvent::Type::kWarning, "Failed", "Fail", "DeadlineExceeded: " + message));
}

}  // namespace oarlock::control
