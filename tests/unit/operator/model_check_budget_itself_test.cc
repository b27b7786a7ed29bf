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
std::string violation_of(Policy policy, Policy broken) {
  const JobBuilder job = JobBuilder().nodes(1).max_restarts(2).max_failures_at_step(2).backoff_seconds(0);
  std::vector<Policy> policies(control::policies().begin(), control::policies().end());
  std::ranges::replace(policies, policy, broken);
  return check_model(bounded(from_running(with_steps(with(job, 2, false))), 50'000), policies).violation;
}

// Returns the plan with a change of the status that it writes.
std::optional<Plan> with_status(std::optional<Plan> plan, const std::function<void(api::Status&)>& change) {
  if (!plan) return plan;
  for (Action& action : plan->actions) {
    if (auto* patch = std::get_if<PatchStatus>(&action)) change(patch->status);
  }
  return plan;
}

TEST(ModelCheckBudgetItself, AcceptsTheOperator) { EXPECT_EQ(violation_of(recover, recover), ""); }

TEST(ModelCheckBudgetItself, DetectsRestartThatIsChargedAfterProgress) {
  const Policy strict = [](const Observed& observed, const Membership& members) {
    return with_status(recover(observed, members), [&](api::Status& next) {
      const auto count = [](const api::Status& status) {
        return status.restarts.after_progress ? status.restarts.after_progress->count : 0;
      };
      next.restarts.charged += count(next) - count(observed.job.status);
    });
  };
  EXPECT_THAT(violation_of(recover, strict), HasSubstr("a restart after progress is charged"));
}

TEST(ModelCheckBudgetItself, DetectsFailureWithoutProgressThatIsNotCounted) {
  const Policy forgetful = [](const Observed& observed, const Membership&) {
    Observed first = observed;
    if (first.job.status.restarts.after_progress) first.job.status.restarts.after_progress->failures = 0;
    return recover(first, classify_objects(first));
  };
  EXPECT_THAT(violation_of(recover, forgetful), HasSubstr("a failure without progress is not counted"));
}

// Treats every failure of an attempt with a step as one after progress.
TEST(ModelCheckBudgetItself, DetectsFreeRestartWithoutProgress) {
  const Policy generous = [](const Observed& observed, const Membership&) {
    Observed always = observed;
    if (always.job.status.restarts.after_progress) always.job.status.restarts.after_progress->step = -1;
    return with_status(recover(always, classify_objects(always)), [&](api::Status& next) {
      if (const auto& last = observed.job.status.restarts.after_progress)
        next.restarts.after_progress->step = std::max(next.restarts.after_progress->step, last->step);
    });
  };
  EXPECT_THAT(violation_of(recover, generous), HasSubstr("a restart is free without progress"));
}

// Reads the highest step from the last report alone.
TEST(ModelCheckBudgetItself, DetectsHighestStepThatFalls) {
  const Policy forgetful = [](const Observed& observed, const Membership& members) {
    return with_status(converge(observed, members), [](api::Status& next) {
      if (next.highest_progress && next.progress) next.highest_progress->step = next.progress->step;
    });
  };
  EXPECT_THAT(violation_of(converge, forgetful), HasSubstr("the highest step falls"));
}

}  // namespace
}  // namespace oarlock::test
