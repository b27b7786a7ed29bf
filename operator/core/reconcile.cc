#include "operator/core/reconcile.h"

#include "operator/core/lifetime.h"
#include "operator/core/plan.h"

namespace oarlock::control {
namespace {

// The first that has a plan decides.
constexpr Policy kPolicies[] = {
    leave_to_its_manager,
    leave_the_deleted,
    report_unreadable,
    report_unknown_fields,
    expire,
    tidy_the_ended,
    wait_for_fresh_cache,
    complete,
    suspend,
    resume,
    enforce_deadline,
    recover,
    handle_name_conflict,
    refuse_nonsense,
    converge,
};

}  // namespace

std::span<const Policy> policies() { return kPolicies; }

Plan reconcile(const Observed& observed) { return reconcile(observed, kPolicies); }

Plan reconcile(const Observed& observed, std::span<const Policy> policies) {
  const Membership members = split(observed);
  for (const Policy policy : policies) {
    if (std::optional<Plan> plan = policy(observed, members)) {
      plan->requeue_after = sooner(plan->requeue_after, time_left(deadline(observed.job), observed.now));
      return std::move(*plan);
    }
  }
  return {};
}

}  // namespace oarlock::control
