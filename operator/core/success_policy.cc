#include "operator/core/success_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/core/desired.h"
#include "operator/core/failure_case.h"
#include "operator/core/plan.h"
#include "operator/core/policy.h"
#include "operator/core/status.h"

namespace oarlock::control {
namespace {

std::string describe(const Job& job, const Membership& members) {
  if (job.spec.success_policy == api::SuccessPolicy::kRank0) {
    return fmt::format("node rank 0 is done: pod {} has ended", pod_name(job, job.status.attempt, 0));
  }
  const size_t all = members.current.size();
  const auto ignored = std::ranges::count_if(
      members.current, [](const Pod* pod) { return pod != nullptr && has_ended(*pod) && !has_exit_code_0(*pod); });
  if (ignored == 0) return fmt::format("all {} pods ended with exit code 0", all);
  return fmt::format("all {} pods ended, {} of them with an exit code that failurePolicy.rules ignores", all, ignored);
}

}  // namespace

bool is_success(const Job& job, const Membership& members) {
  if (members.current.empty()) return false;
  if (job.spec.success_policy == api::SuccessPolicy::kRank0) return is_rank_done(job, members, 0);
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (!is_rank_done(job, members, rank)) return false;
  }
  return true;
}

std::optional<Plan> complete(const Observed& observed, const Membership& members) {
  if (!is_success(observed.job, members)) return std::nullopt;
  api::Status next = refresh(observed, members);
  const std::string message = describe(observed.job, members);
  enter(next, api::Phase::kComplete, "Succeeded", message, observed.now);
  read_last_words(members, next, observed.now);
  return finish(observed, members, next, {}, event(EmitEvent::Type::kNormal, "Completed", "Complete", message));
}

}  // namespace oarlock::control
