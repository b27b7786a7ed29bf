// spec.suspend: stops the pods, and starts a new attempt that is no restart.
#include <fmt/format.h>

#include "operator/core/cleanup.h"
#include "operator/core/plan.h"
#include "operator/core/policy.h"
#include "operator/core/status.h"

namespace oarlock::control {

using api::Phase;

std::optional<Plan> suspend(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  if (!observed.job.spec.suspend) return std::nullopt;
  const bool is_new = status.phase != Phase::kSuspended;
  // The first pods are there before there is a status.
  const bool has_started = status.start_time || has_pods(members);
  api::Status next = refresh(observed, members);
  if (!next.start_time && has_started) next.start_time = std::chrono::floor<std::chrono::seconds>(observed.now);
  if (is_new) {
    enter(next, Phase::kSuspended, "Suspended", "spec.suspend is true", observed.now);
    if (!has_started) next.start_time.reset();
    if (!status.attempt_start_time) next.attempt_start_time.reset();
    next.nodes = {.desired = observed.job.spec.nodes, .summary = fmt::format("0/{}", observed.job.spec.nodes)};
  }
  const api::Condition* condition = find_condition(next, Phase::kSuspended);
  const SystemTime since = condition == nullptr ? observed.now : condition->last_transition_time;
  Deletions left = stop_all(observed, members, "the job is suspended", since);
  Plan plan = plan_of(Verdict::kWait, "the job is suspended", left.look_again);
  // Also as a fence: a job that was born suspended has the same attempt after it was resumed.
  if (next != status || !left.actions.empty()) plan.actions.emplace_back(PatchStatus{next});
  if (is_new) {
    plan.actions.emplace_back(
        event(EmitEvent::Type::kNormal, "Suspended", "DeletePods", "spec.suspend is true: the pods are stopped"));
  }
  append(plan.actions, std::move(left.actions));
  if (!plan.actions.empty()) plan.verdict = Verdict::kProgress;
  return plan;
}

std::optional<Plan> resume(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  if (job.status.phase != Phase::kSuspended) return std::nullopt;
  api::Status next = job.status;
  if (next.start_time) ++next.attempt;  // the pods of the last one may still be there, under its names
  next.attempt_start_time.reset();
  enter(next, Phase::kPending, "PodsStarting", "", observed.now);
  const std::string message =
      fmt::format("spec.suspend is false: starting {} pods as attempt {}", job.spec.nodes, next.attempt);
  return begin_attempt(observed, next, {}, {event(EmitEvent::Type::kNormal, "Resumed", "CreatePods", message)},
                       message);
}

}  // namespace oarlock::control
