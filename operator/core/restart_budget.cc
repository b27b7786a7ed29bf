#include "operator/core/restart_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/boxed_optional.h"
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
  int64_t in_pods = 0;      // restarts in the pods that are charged now
  int after_progress = 0;   // failures after progress that are being decided
  bool is_at_step = false;  // the group has failed at the step of charge.after_progress once more
};

// Why the job must not restart.
struct Excess {
  std::string_view reason;
  std::string message;
};
using Limit = std::optional<Excess> (*)(const Usage&);

std::optional<Excess> limit_failures_at_step(const Usage& usage) {
  const api::FailurePolicy& policy = usage.policy;
  if (!policy.max_failures_at_step || !usage.is_at_step) return std::nullopt;
  const api::AfterProgress& last = *usage.charge.after_progress;
  if (last.failures < *policy.max_failures_at_step) return std::nullopt;
  return Excess{kNoProgress, fmt::format("failed {} times at step {} without progress", last.failures, *last.step)};
}

std::optional<Excess> limit_charged(const Usage& usage) {
  const int64_t allowed = usage.policy.max_restarts;
  if (usage.charge.charged == 0 || usage.used + usage.charge.charged <= allowed) return std::nullopt;
  const std::string in_pods =
      usage.in_pods == 0 ? "" : fmt::format(", {} of them in the pods of this attempt", usage.in_pods);
  return Excess{kMaxRestartsExceeded,
                fmt::format("{} of {} restarts are used up{}", usage.used + usage.in_pods, allowed, in_pods)};
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

// Returns the restarts in the pods of the current attempt, as rank 0 or its launcher has reported them. Those after
// which a lost pod was replaced are left out, because the replacement was charged itself.
int64_t restarts_in_pods(const api::Status& status) {
  int64_t out = 0;
  if (status.in_pod_restarts && status.in_pod_restarts->attempt == status.attempt)
    out += to_count(status.in_pod_restarts->attempt_total);
  if (!status.recoveries) return out;
  if (status.recoveries->attempt == status.attempt) out += to_count(status.recoveries->attempt_total);
  return std::max<int64_t>(out - std::max(status.recoveries->pods, 0), 0);
}

}  // namespace

bool has_progressed(const api::Restarts& restarts, const AttemptProgress& reached) {
  const api::AfterProgress last = restarts.after_progress.value_or(api::AfterProgress{});
  return reached.step.value_or(0) > last.step.value_or(0) ||
         reached.checkpoint_step.value_or(0) > last.checkpoint_step.value_or(0);
}

RestartCharge charge_failures(const api::FailurePolicy& policy, const api::Status& status,
                              const AttemptProgress& reached, const BudgetRequest& request) {
  const api::AfterProgress before = status.restarts.after_progress.value_or(api::AfterProgress{});
  RestartCharge out;
  out.after_progress = status.restarts.after_progress;
  Usage usage{.policy = policy, .charge = out};
  if (has_progressed(status.restarts, reached)) {
    usage.after_progress = request.failures;
    out.after_progress = api::AfterProgress{.count = before.count,
                                            .step = reached.step,
                                            .checkpoint_step = reached.checkpoint_step,
                                            .failures = request.is_group_restart ? 1 : 0};
  } else {
    const bool reports = request.is_group_restart && reached.step.has_value();
    if (reports) usage.in_pods = restarts_in_pods(status);
    out.charged = to_count(request.failures + usage.in_pods);
    if (reports && !out.after_progress)
      out.after_progress = api::AfterProgress{.step = reached.step, .checkpoint_step = reached.checkpoint_step};
    usage.is_at_step = reports && out.after_progress->step == reached.step;
    if (usage.is_at_step) increment(out.after_progress->failures);
  }
  usage.used = used_restarts(status);
  usage.total = usage.used + std::max(before.count, 0);
  for (const Limit limit : kLimits) {
    if (std::optional<Excess> excess = limit(usage)) {
      out.reason = excess->reason;
      out.message = std::move(excess->message);
      return out;
    }
  }
  if (usage.after_progress > 0) out.after_progress->count = to_count(int64_t{before.count} + usage.after_progress);
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
