// After a failure: the whole group again, as the next attempt, or the end of the job.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "operator/core/backoff.h"
#include "operator/core/failure_policy.h"
#include "operator/core/plan.h"
#include "operator/core/policy.h"
#include "operator/core/status.h"

namespace oarlock::control {
namespace {

// A stored count may be any number.
void increment(int& count) {
  if (count < std::numeric_limits<int>::max()) ++count;
}

void count_restart(const Failure& failure, api::Restarts& restarts) {
  increment(restarts.total);
  if (failure.is_charged) increment(restarts.charged);
  auto same = std::find_if(restarts.reasons.begin(), restarts.reasons.end(),
                           [&](const api::RestartCount& count) { return count.reason == failure.restart_reason; });
  if (same == restarts.reasons.end()) {
    same = restarts.reasons.insert(same, {std::string(failure.restart_reason), 0});
  }
  increment(same->count);
}

std::string announce(const Job& job, const api::Status& next, const Failure& failure) {
  const std::string count =
      failure.is_charged ? fmt::format("restart {} of {}", next.restarts.charged, job.spec.failure_policy.max_restarts)
                         : "a restart that does not count";
  return fmt::format("{} as attempt {}: {}", count, next.attempt, failure.message);
}

}  // namespace

std::optional<Plan> recover(const Observed& observed, const Membership& members) {
  const Failure failure = judge(observed.job, members, observed.now);
  if (failure.decision == Failure::Decision::kNone) return std::nullopt;
  if (failure.decision == Failure::Decision::kWait) return plan_of(Verdict::kWait, failure.message, failure.wait);
  std::vector<Action> guards;
  if (!failure.confirm_absent.empty()) guards.emplace_back(ConfirmPodAbsent{failure.confirm_absent});
  api::Status next = refresh(observed, members);
  read_last_words(members, next, observed.now);
  remember(next, failure.record, observed.now);
  if (failure.decision == Failure::Decision::kFail) {
    enter(next, api::Phase::kFailed, failure.reason, failure.message, observed.now);
    return finish(observed, members, next, std::move(guards),
                  event(EmitEvent::Type::kWarning, "Failed", "Fail",
                        fmt::format("{}: {}", failure.reason, failure.message), failure.record.pod));
  }
  ++next.attempt;
  count_restart(failure, next.restarts);
  next.attempt_start_time.reset();
  enter(next, api::Phase::kRestarting, failure.reason, failure.message, observed.now);
  const std::string message = announce(observed.job, next, failure);
  return begin_attempt(observed, next, std::move(guards),
                       {event(EmitEvent::Type::kWarning, "Restarting", "RestartGroup", message, failure.record.pod)},
                       message);
}

}  // namespace oarlock::control
