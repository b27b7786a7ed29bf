#include "operator/core/plan.h"

#include <algorithm>

#include "operator/api/validate.h"
#include "operator/core/cleanup.h"
#include "operator/core/creation.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using std::chrono::seconds;

constexpr size_t kEventMessageLimit = 1024;
constexpr seconds kAskForConflict{30};  // nobody tells us when somebody else's object goes away

}  // namespace

Plan plan_of(Verdict verdict, std::string reason, std::optional<seconds> requeue_after) {
  Plan plan;
  plan.verdict = verdict;
  plan.reason = std::move(reason);
  plan.requeue_after = requeue_after;
  return plan;
}

EmitEvent event(EmitEvent::Type type, const char* reason, const char* action, const std::string& message,
                const std::string& pod) {
  return {type, reason, action, one_line(message, kEventMessageLimit), pod};
}

void append(std::vector<Action>& to, std::vector<Action> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

std::optional<seconds> sooner(std::optional<seconds> a, std::optional<seconds> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<seconds> time_left(std::optional<SystemTime> then, SystemTime now) {
  if (!then || *then <= now) return std::nullopt;
  return std::chrono::ceil<seconds>(*then - now);
}

Plan begin_attempt(const Observed& observed, api::Status next, std::vector<Action> guards, std::vector<Action> events,
                   std::string reason) {
  Observed after = observed;
  after.job.status = std::move(next);
  const Membership members = split(after);
  after.job.status = refresh(after, members);

  Plan plan = plan_of(Verdict::kProgress, std::move(reason));
  plan.actions = std::move(guards);
  plan.actions.emplace_back(PatchStatus{after.job.status});
  append(plan.actions, std::move(events));
  Deletions old = clear_old(after, members);
  append(plan.actions, std::move(old.actions));
  plan.requeue_after = old.look_again;
  if (names_in_the_way(members).empty() && api::check(after.job).empty()) {
    Creations made = creations(after, members);
    append(plan.actions, std::move(made.actions));
    plan.requeue_after = sooner(plan.requeue_after, made.look_again);
  }
  return plan;
}

Plan finish(const Observed& observed, const Membership& members, api::Status next, std::vector<Action> guards,
            EmitEvent said) {
  Plan plan = plan_of(Verdict::kComplete, said.message);
  plan.actions = std::move(guards);
  plan.actions.emplace_back(PatchStatus{std::move(next)});
  plan.actions.emplace_back(std::move(said));
  Deletions left = clear_ended(observed, members, observed.now);
  append(plan.actions, std::move(left.actions));
  plan.requeue_after = left.look_again;
  return plan;
}

Plan blocked(const Observed& observed, const Membership& members, const char* reason, const std::string& message) {
  api::Status next = refresh(observed, members);
  if (may_create_pods(next.phase)) enter(next, next.phase, reason, one_line(message), observed.now);
  Plan plan = plan_of(Verdict::kBlocked, message, kAskForConflict);
  if (next == observed.job.status) return plan;
  const api::Condition* before = find_condition(observed.job.status, next.phase);
  plan.actions.emplace_back(PatchStatus{next});
  if (before == nullptr || before->reason != reason) {
    plan.actions.emplace_back(event(EmitEvent::Type::kWarning, reason, "Wait", message));
  }
  return plan;
}

}  // namespace oarlock::control
