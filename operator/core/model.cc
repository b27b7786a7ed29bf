#include "operator/core/model.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "api/rules.h"
#include "operator/core/text.h"

namespace oarlock::control {

using std::chrono::seconds;

std::string to_string(PlanState state) {
  switch (state) {
    case PlanState::kProgress:
      return "Progress";
    case PlanState::kWait:
      return "Wait";
    case PlanState::kComplete:
      return "Complete";
    case PlanState::kBlocked:
      return "Blocked";
  }
  return "";
}

Plan make_plan(PlanState state, std::string reason, std::optional<seconds> requeue_after) {
  Plan plan;
  plan.state = state;
  plan.reason = std::move(reason);
  plan.requeue_after = requeue_after;
  return plan;
}

EmitEvent make_event(EmitEvent::Type type, const char* reason, const char* action, const std::string& message,
                     const std::string& pod) {
  constexpr size_t kMessageLimit = 1024;
  return {type, reason, action, sanitize_line(message, kMessageLimit), pod};
}

void append(std::vector<Action>& to, std::vector<Action> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

std::optional<seconds> earliest(std::optional<seconds> a, std::optional<seconds> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<seconds> time_until(std::optional<SystemTime> then, SystemTime now) {
  if (!then || *then <= now) return std::nullopt;
  return std::chrono::ceil<seconds>(*then - now);
}

bool has_next_attempt(const Job& job) { return job.status.attempt < api::rules::kMaxAttempt; }

SystemTime end_of_delay(SystemTime since, seconds delay, SystemTime now) {
  constexpr seconds kMaxClockError(60);
  return since > now + kMaxClockError ? now : since + delay;
}

seconds clamp_period(int64_t value) { return seconds(std::clamp<int64_t>(value, 0, api::rules::kMaxSeconds)); }

void increment(int& count) {
  if (count < std::numeric_limits<int>::max()) ++count;
}

}  // namespace oarlock::control
