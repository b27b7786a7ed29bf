#include "tests/support/model/budget_invariants.h"

#include <optional>

#include "operator/core/restart_budget.h"
#include "operator/core/status.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT: this file is about its types
using api::Phase;

// Whether the status has a step of the current attempt.
bool has_step(const api::Status& status) {
  return api::is_running(status.phase) && status.progress && status.progress->last_step_time;
}

// Whether rank 0 of the attempt in this status has reported the step that the status has.
bool has_report(const SimCluster& cluster, const api::Status& status) {
  const std::optional<RankStatus>& reported = cluster.objects().reported;
  return has_step(status) && reported && reported->attempt == status.attempt && status.progress->step == reported->step;
}

// The highest step of the job in the status.
std::optional<int64_t> highest_step(const api::Status& status) {
  return status.highest_progress ? status.highest_progress->step : std::nullopt;
}

// Whether rank 0 has reported a step above that of the last failure.
bool has_truly_progressed(const SimCluster& cluster, int64_t last_step) {
  const api::Status& status = cluster.job().status;
  const std::optional<RankStatus>& reported = cluster.objects().reported;
  return (reported && reported->attempt == status.attempt && reported->step > last_step) ||
         highest_step(status).value_or(0) > last_step;
}

// The highest step is that of all reports, and neither it nor that of the last failure falls.
std::string check_highest_steps(const SimCluster& before, const api::Status& is) {
  const api::Status& was = before.job().status;
  if (has_report(before, is) && highest_step(is).value_or(-1) < is.progress->step) return "a reported step is lost";
  const bool is_resumed = was.phase == Phase::kSuspended;
  if (!is_resumed && highest_step(is) < highest_step(was)) return "the highest step falls";
  if (!is_resumed && last_progress(is).step < last_progress(was).step) return "the step of the last progress falls";
  return "";
}

std::string failed_reason(const api::Status& status) {
  const api::Condition* failed = find_condition(status, Phase::kFailed);
  return status.phase != Phase::kFailed || failed == nullptr ? "" : failed->reason;
}

}  // namespace

std::string check_budget(const SimCluster& before, const api::Status& is) {
  const api::Status& was = before.job().status;
  const api::FailurePolicy& policy = before.job().spec.failure_policy;
  const api::AfterProgress last = was.restarts.after_progress.value_or(api::AfterProgress{});
  const api::AfterProgress next = is.restarts.after_progress.value_or(api::AfterProgress{});
  const int64_t last_step = last.step.value_or(0);
  const int after_progress = next.count - last.count;
  const int charged = used_restarts(is) - used_restarts(was);
  const std::string reason = is_terminal(was.phase) ? "" : failed_reason(is);
  const bool has_no_restart = reason == kMaxRestartsExceeded || reason == kNoProgress;
  const int64_t total = used_restarts(was) + last.count;
  const bool is_charged = after_progress != 0 || charged != 0;
  if (is_charged && total + after_progress + charged > total_restart_limit(policy))
    return "more restarts than allowed in total";
  if (after_progress > 0 && !has_truly_progressed(before, last_step)) return "a restart is free without progress";

  // Otherwise, the operator may know a higher step, which the status does not have.
  const std::optional<int64_t> step = has_report(before, was) ? highest_step(was) : std::nullopt;
  const bool is_progress = step && *step > last_step;
  if (is_progress && charged > 0) return "a restart after progress is charged";
  if (is_progress && has_no_restart && total < total_restart_limit(policy))
    return "a job that makes progress fails for its restarts";
  if (reason == kMaxRestartsExceeded && used_restarts(was) < policy.max_restarts && total < total_restart_limit(policy))
    return "a job fails before its restarts are used up";
  if (reason == kNoProgress && (!policy.max_failures_at_step || next.failures != *policy.max_failures_at_step))
    return "a job fails before its failures at one step are used up";
  const bool is_group_restart = is.restarts.charged != was.restarts.charged;
  if (step && !is_progress && (is_group_restart || has_no_restart) && next.failures != last.failures + 1)
    return "a failure without progress is not counted";
  const bool has_failed_too_often = policy.max_failures_at_step && next.failures >= *policy.max_failures_at_step;
  if (has_failed_too_often && is_group_restart) return "a job restarts after its failures at one step are used up";
  return check_highest_steps(before, is);
}

}  // namespace oarlock::test
