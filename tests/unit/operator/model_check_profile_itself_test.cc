// Verifies that the search of model_check_test detects operators that apply a profile at the wrong time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "operator/core/lifetime.h"
#include "operator/core/profile.h"
#include "operator/core/reconcile.h"
#include "tests/unit/operator/model_options.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using ::testing::HasSubstr;

std::string violation_of(Policy policy, Policy broken) {
  std::vector<Policy> policies(control::policies().begin(), control::policies().end());
  std::ranges::replace(policies, policy, broken);
  const JobBuilder job = JobBuilder().nodes(1).max_restarts(1).backoff_seconds(0);
  return check_model(with_profile(with(job, 2), 1), policies).violation;
}

TEST(ModelCheckProfileItself, DetectsProfileThatIsAppliedAtRestart) {
  const Policy eager = [](const Observed& observed, const Membership& members) {
    std::optional<Plan> plan = recover(observed, members);
    if (!plan || observed.job.status.phase != api::Phase::kRunning) return plan;
    for (Action& action : plan->actions) {
      auto* patch = std::get_if<PatchStatus>(&action);
      if (patch != nullptr && patch->status.profile) ++patch->status.profile->generation;
    }
    return plan;
  };
  EXPECT_THAT(violation_of(recover, eager), HasSubstr("the profile of a job that has started changes"));
}

TEST(ModelCheckProfileItself, DetectsResumeWithTheFormerProfile) {
  const Policy lazy = [](const Observed& observed, const Membership& members) {
    Observed former = observed;
    former.profile = observed.job.status.profile;
    if (former.profile) former.profile->spec = "{}";
    return resume(former, members);
  };
  EXPECT_THAT(violation_of(resume, lazy), HasSubstr("resumed with another profile than the present one"));
}

// Records the profile without checking whether pods of the job exist that its watch does not show yet.
TEST(ModelCheckProfileItself, DetectsProfileThatIsRecordedAfterThePods) {
  const Policy careless = [](const Observed& observed, const Membership& members) {
    std::optional<Plan> plan = apply_profile(observed, members);
    if (plan)
      std::erase_if(plan->actions,
                    [](const Action& action) { return std::holds_alternative<ConfirmPodAbsent>(action); });
    return plan;
  };
  EXPECT_THAT(violation_of(apply_profile, careless), HasSubstr("a pod has another profile than its job"));
}

}  // namespace
}  // namespace oarlock::test
