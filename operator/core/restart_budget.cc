#include "operator/core/restart_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "operator/core/failure.h"
#include "operator/core/model.h"

namespace oarlock::control {
namespace {

constexpr int64_t kTotalPerRestart = 10;

// Everything that a limit depends on, with the failures that are being decided.
struct Usage {
  const api::FailurePolicy& policy;
  const RestartCharge& charge;
  int64_t used = 0;         // charged before
  int64_t total = 0;        // the same, and those after progress
  int after_progress = 0;   // failures after progress that are being decided
  bool is_counted = false;  // the failure counts against maxFailuresAtStep
};

// Why the job must not restart.
struct Excess {
  std::string_view reason;
  std::string message;
};
using Limit = std::optional<Excess> (*)(const Usage&);

std::optional<Excess> limit_failures_at_step(const Usage& usage) {
  const api::FailurePolicy& policy = usage.policy;
  if (!policy.max_failures_at_step || !usage.is_counted) return std::nullopt;
  const api::AfterProgress& last = usage.charge.after_progress;
  if (last.failures < *policy.max_failures_at_step) return std::nullopt;
  return Excess{kNoProgress,
                fmt::format("failed {} times without progress beyond step {}", last.failures, last.step.value_or(0))};
}

std::optional<Excess> limit_charged(const Usage& usage) {
  const int64_t allowed = usage.policy.max_restarts;
  if (usage.charge.charged == 0 || usage.used + usage.charge.charged <= allowed) return std::nullopt;
  return Excess{kMaxRestartsExceeded, fmt::format("{} of {} restarts are used up", usage.used, allowed)};
}

std::optional<Excess> limit_total(const Usage& usage) {
  const int64_t allowed = total_restart_limit(usage.policy);
  if (usage.total + usage.charge.charged + usage.after_progress <= allowed) return std::nullopt;
  return Excess{kMaxRestartsExceeded,
                fmt::format("{} of {} restarts are used up, those after progress included", usage.total, allowed)};
}

// The first limit that is exceeded fails the job.
constexpr Limit kLimits[] = {limit_failures_at_step, limit_charged, limit_total};

int to_count(int64_t value) { return static_cast<int>(std::clamp<int64_t>(value, 0, std::numeric_limits<int>::max())); }

// Whether the job has restarted although its status does not have restarts.afterProgress: an older operator wrote the
// status, or an older CRD drops the field. Its counts are then not known, so that no failure is free.
bool is_progress_unknown(const api::Status& status) {
  const bool has_restarted = status.restarts.total > 0 || (status.recoveries && status.recoveries->pods > 0);
  return has_restarted && !status.restarts.after_progress;
}

bool has_progressed(const api::AfterProgress& last, const api::HighestProgress& reached) {
  return reached.step.value_or(0) > last.step.value_or(0) ||
         reached.checkpoint_step.value_or(0) > last.checkpoint_step.value_or(0);
}

}  // namespace

api::AfterProgress last_progress(const api::Status& status) {
  api::AfterProgress out = status.restarts.after_progress.value_or(api::AfterProgress{});
  if (!is_progress_unknown(status)) return out;
  for (const api::AttemptRecord& record : status.attempts) {
    if (has_failed(record)) out.step = std::max(out.step, record.step);
  }
  return out;
}

RestartCharge charge_failures(const api::FailurePolicy& policy, const api::Status& status,
                              const api::HighestProgress& reached, const BudgetRequest& request) {
  const api::AfterProgress last = last_progress(status);
  const bool is_progress = !is_progress_unknown(status) && has_progressed(last, reached);
  RestartCharge out{.charged = is_progress ? 0 : request.failures};
  api::AfterProgress& next = out.after_progress;
  next = {.count = last.count,
          .step = std::max(last.step, reached.step),
          .checkpoint_step = std::max(last.checkpoint_step, reached.checkpoint_step)};
  if (!is_progress) next.failures = last.failures;
  Usage usage{.policy = policy, .charge = out, .after_progress = is_progress ? request.failures : 0};
  usage.is_counted = request.is_group_restart && reached.step;
  if (usage.is_counted) increment(next.failures);
  usage.used = used_restarts(status);
  usage.total = usage.used + std::max(last.count, 0);
  for (const Limit limit : kLimits) {
    if (std::optional<Excess> excess = limit(usage)) {
      out.reason = excess->reason;
      out.message = std::move(excess->message);
      return out;
    }
  }
  next.count = to_count(int64_t{last.count} + usage.after_progress);
  return out;
}

void charge_restart(const RestartCharge& charge, api::Status& status) {
  status.restarts.after_progress = charge.after_progress;
  status.restarts.charged = to_count(int64_t{status.restarts.charged} + charge.charged);
}

void charge_replacement(const RestartCharge& charge, api::Status& status) {
  status.restarts.after_progress = charge.after_progress;
  api::Recoveries recoveries = status.recoveries.value_or(api::Recoveries{});
  recoveries.charged = to_count(int64_t{recoveries.charged} + charge.charged);
  status.recoveries = std::move(recoveries);
}

int used_restarts(const api::Status& status) {
  const int64_t replaced = status.recoveries ? status.recoveries->charged : 0;
  return static_cast<int>(std::min<int64_t>(replaced + status.restarts.charged, std::numeric_limits<int>::max()));
}

int64_t total_restart_limit(const api::FailurePolicy& policy) {
  return policy.max_total_restarts.value_or(kTotalPerRestart * std::max(policy.max_restarts, 0));
}

}  // namespace oarlock::control
