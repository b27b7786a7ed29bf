// Verifies that the search of model_check_test detects operators that miscount the budget of restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "operator/core/reconcile.h"
#include "tests/unit/operator/model_options.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using ::testing::HasSubstr;

// A job of one pod, which fails once after progress and once more at the same step.
std::string violation_of(Policy broken) {
  const JobBuilder job = JobBuilder().nodes(1).max_restarts(2).max_failures_at_step(2).backoff_seconds(0);
  std::vector<Policy> policies(control::policies().begin(), control::policies().end());
  std::ranges::replace(policies, Policy(recover), broken);
  return check_model(bounded(from_running(with_steps(with(job, 2, false))), 100'000), policies).violation;
}

// Returns the plan of recover() with a change of the status that it writes.
std::optional<Plan> recover_with(const Observed& observed, const Membership& members,
                                 const std::function<void(api::Restarts&)>& change) {
  std::optional<Plan> plan = recover(observed, members);
  if (!plan) return plan;
  for (Action& action : plan->actions) {
    auto* patch = std::get_if<PatchStatus>(&action);
    if (patch != nullptr && patch->status.restarts.after_progress) change(patch->status.restarts);
  }
  return plan;
}

TEST(ModelCheckBudgetItself, AcceptsTheOperator) { EXPECT_EQ(violation_of(recover), ""); }

TEST(ModelCheckBudgetItself, DetectsRestartThatIsChargedAfterProgress) {
  const Policy strict = [](const Observed& observed, const Membership& members) {
    return recover_with(observed, members, [&](api::Restarts& restarts) {
      restarts.charged += restarts.total - observed.job.status.restarts.total;
      restarts.charged = std::min(restarts.charged, restarts.total);
    });
  };
  EXPECT_THAT(violation_of(strict), HasSubstr("a restart after progress is charged"));
}

TEST(ModelCheckBudgetItself, DetectsFailureAtOneStepThatIsNotCounted) {
  const Policy forgetful = [](const Observed& observed, const Membership&) {
    Observed first = observed;
    if (first.job.status.restarts.after_progress) first.job.status.restarts.after_progress->failures = 0;
    return recover(first, classify_objects(first));
  };
  EXPECT_THAT(violation_of(forgetful), HasSubstr("a failure at the step of the last one is not counted"));
}

// Treats every failure as one after progress.
TEST(ModelCheckBudgetItself, DetectsFreeRestartWithoutProgress) {
  const Policy generous = [](const Observed& observed, const Membership&) {
    Observed always = observed;
    if (always.job.status.restarts.after_progress) always.job.status.restarts.after_progress->step.reset();
    return recover(always, classify_objects(always));
  };
  EXPECT_THAT(violation_of(generous), HasSubstr("a restart is free without progress"));
}

}  // namespace
}  // namespace oarlock::test
