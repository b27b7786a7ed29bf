#include "operator/core/lifetime.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/api/rules.h"
#include "operator/core/cleanup.h"
#include "operator/core/plan.h"
#include "operator/core/policy.h"
#include "operator/core/status.h"

namespace oarlock::control {

using api::Phase;
using std::chrono::seconds;

namespace {

// Of a stored job, which may break the schema: a longer period would leave what a time can hold.
seconds period(int64_t value) { return seconds(std::clamp<int64_t>(value, 0, api::rules::kMaxSeconds)); }

}  // namespace

std::optional<SystemTime> deadline(const Job& job) {
  const api::Status& status = job.status;
  const bool is_active = status.phase != Phase::kNone && status.phase != Phase::kSuspended &&
                         !is_terminal(status.phase) && !job.metadata.deletion_timestamp;
  if (!job.spec.active_deadline_seconds || !is_active || !status.start_time) return std::nullopt;
  const api::Condition* suspended = find_condition(status, Phase::kSuspended);
  const SystemTime since = suspended == nullptr ? *status.start_time : suspended->last_transition_time;
  return since + period(*job.spec.active_deadline_seconds);
}

std::optional<SystemTime> expiry(const Job& job) {
  if (!job.spec.ttl_seconds_after_finished || !is_terminal(job.status.phase) || !job.status.completion_time)
    return std::nullopt;
  return *job.status.completion_time + period(*job.spec.ttl_seconds_after_finished);
}

std::optional<Plan> leave_to_its_manager(const Observed& observed, const Membership&) {
  if (!observed.job.spec.is_managed_elsewhere()) return std::nullopt;
  return plan_of(Verdict::kComplete, fmt::format("{} manages the job", observed.job.spec.managed_by));
}

std::optional<Plan> leave_the_deleted(const Observed& observed, const Membership&) {
  if (!observed.job.metadata.deletion_timestamp) return std::nullopt;
  return plan_of(Verdict::kComplete, "the job is being deleted; the garbage collector takes what it owns");
}

std::optional<Plan> expire(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  const std::optional<SystemTime> end = expiry(job);
  if (!end || observed.now < *end) return std::nullopt;
  Plan plan = plan_of(Verdict::kComplete,
                      fmt::format("ttlSecondsAfterFinished ({} s) is over", *job.spec.ttl_seconds_after_finished));
  plan.actions.emplace_back(DeleteJob{job.metadata.name, job.metadata.uid, job.metadata.resource_version});
  return plan;
}

// Terminal is permanent: only leftovers are stopped.
std::optional<Plan> tidy_the_ended(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  if (!is_terminal(status.phase)) return std::nullopt;
  Plan plan = plan_of(Verdict::kComplete, "the job has ended");
  if (status.observed_generation != observed.job.metadata.generation) {
    api::Status next = status;
    next.observed_generation = observed.job.metadata.generation;
    plan.actions.emplace_back(PatchStatus{std::move(next)});
  }
  Deletions left = clear_ended(observed, members, status.completion_time.value_or(observed.now));
  append(plan.actions, std::move(left.actions));
  plan.requeue_after = sooner(left.look_again, time_left(expiry(observed.job), observed.now));
  return plan;
}

std::optional<Plan> enforce_deadline(const Observed& observed, const Membership& members) {
  const std::optional<SystemTime> end = deadline(observed.job);
  if (!end || observed.now < *end) return std::nullopt;
  api::Status next = refresh(observed, members);
  read_last_words(members, next, observed.now);
  const std::string message = fmt::format("the job was active for longer than activeDeadlineSeconds ({} s)",
                                          *observed.job.spec.active_deadline_seconds);
  enter(next, Phase::kFailed, "DeadlineExceeded", message, observed.now);
  return finish(observed, members, next, {},
                event(EmitEvent::Type::kWarning, "Failed", "Fail", "DeadlineExceeded: " + message));
}

}  // namespace oarlock::control
