#include "operator/core/restart_budget.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT

api::FailurePolicy policy_with(int max_restarts) {
  api::FailurePolicy policy;
  policy.max_restarts = max_restarts;
  return policy;
}

// A job that fails again and again, and is charged each time.
class FailingJob {
 public:
  explicit FailingJob(api::FailurePolicy policy) : policy_(std::move(policy)) {}

  RestartCharge fail(const api::HighestProgress& reached, const BudgetRequest& request = {}) {
    RestartCharge charge = charge_failures(policy_, status_, reached, request);
    if (charge.reason.empty() && request.is_group_restart) {
      charge_restart(charge, status_);
      ++status_.restarts.total;
    } else if (charge.reason.empty()) {
      charge_replacement(charge, status_);
      status_.recoveries->pods += request.failures;
    }
    return charge;
  }
  // Returns the number of failures with this progress until the job must not restart.
  int failures_until_end(const api::HighestProgress& reached) {
    for (int failures = 1; failures < 100; ++failures) {
      if (!fail(reached).reason.empty()) return failures;
    }
    return 0;
  }
  api::Status& status() { return status_; }

 private:
  api::FailurePolicy policy_;
  api::Status status_;
};

TEST(RestartBudget, ProgressIsANewerStepOrCheckpoint) {
  struct Case {
    const char* name;
    std::optional<api::AfterProgress> last;
    api::HighestProgress reached;
    bool is_progress;
  };
  const api::AfterProgress last{.step = 120, .checkpoint_step = 100, .failures = 1};
  for (const Case& row : std::vector<Case>{
           {.name = "nothing reported", .last = {}, .reached = {}, .is_progress = false},
           {.name = "no step done", .last = {}, .reached = {0, -1}, .is_progress = false},
           {.name = "first step", .last = {}, .reached = {1, std::nullopt}, .is_progress = true},
           {.name = "nothing reported since", .last = last, .reached = {}, .is_progress = false},
           {.name = "the same", .last = last, .reached = {120, 100}, .is_progress = false},
           {.name = "earlier", .last = last, .reached = {119, 90}, .is_progress = false},
           {.name = "higher step", .last = last, .reached = {121, 100}, .is_progress = true},
           {.name = "newer checkpoint", .last = last, .reached = {110, 105}, .is_progress = true},
           {.name = "higher step after an older checkpoint", .last = last, .reached = {121, 50}, .is_progress = true},
       }) {
    FailingJob job(policy_with(3));
    if (row.last) job.status().restarts.after_progress = *row.last;
    EXPECT_EQ(job.fail(row.reached).charged, row.is_progress ? 0 : 1) << row.name;
  }
}

TEST(RestartBudget, RestartsAfterProgressAreNotCharged) {
  FailingJob job(policy_with(1));
  for (int64_t step = 10; step <= 100; step += 10) EXPECT_EQ(job.fail({step, step - 5}).charged, 0) << step;
  EXPECT_EQ(job.status().restarts.charged, 0);
  EXPECT_EQ(job.status().restarts.after_progress->count, 10);
}

TEST(RestartBudget, FailuresWithoutProgressEndAfterMaxRestarts) {
  FailingJob silent(policy_with(2));
  EXPECT_EQ(silent.failures_until_end({}), 3);
  FailingJob job(policy_with(2));
  EXPECT_EQ(job.failures_until_end({7, 5}), 4) << "the first failure follows progress";
  EXPECT_EQ(job.fail({7, 5}).message, "2 of 2 restarts are used up");
  EXPECT_EQ(job.fail({7, 5}).reason, "MaxRestartsExceeded");
  EXPECT_EQ(job.fail({8, 5}).reason, "") << "progress is still possible";
}

TEST(RestartBudget, EndsAfterConfiguredFailuresWithoutProgress) {
  api::FailurePolicy policy = policy_with(100);
  policy.max_failures_at_step = 3;
  FailingJob job(policy);
  EXPECT_EQ(job.failures_until_end({1200, 1000}), 3);
  const RestartCharge last = job.fail({1200, 1000});
  EXPECT_EQ(last.reason, "NoProgress");
  EXPECT_EQ(last.message, "failed 3 times without progress beyond step 1200");
}

// The step of a failure is the last one that was reported, so that one crash has several.
TEST(RestartBudget, FailuresAtLowerStepsCount) {
  api::FailurePolicy policy = policy_with(100);
  policy.max_failures_at_step = 3;
  FailingJob job(policy);
  EXPECT_EQ(job.fail({1200, 1000}).reason, "");
  EXPECT_EQ(job.fail({1100, 1000}).reason, "");
  EXPECT_EQ(job.fail({}).reason, "") << "a program that reports no steps is not limited";
  EXPECT_EQ(job.fail({1300, 1200}).reason, "") << "progress begins a new count";
  EXPECT_EQ(job.fail({1290, 1200}).reason, "");
  EXPECT_EQ(job.fail({1280, 1200}).message, "failed 3 times without progress beyond step 1300");
}

TEST(RestartBudget, CountsFailuresBeforeTheFirstStep) {
  api::FailurePolicy policy = policy_with(100);
  policy.max_failures_at_step = 3;
  FailingJob job(policy);
  EXPECT_EQ(job.failures_until_end({0, std::nullopt}), 3);
}

TEST(RestartBudget, TotalLimitEndsACrashAfterEachStep) {
  const auto restarts_of = [](const api::FailurePolicy& policy) {
    FailingJob job(policy);
    for (int64_t step = 1; step < 200; ++step) {
      if (!job.fail({step, step}).reason.empty()) return step - 1;
    }
    return int64_t{-1};
  };
  EXPECT_EQ(restarts_of(policy_with(3)), 30);
  EXPECT_EQ(restarts_of(policy_with(0)), 0) << "a job without restarts gets none by progress";
  api::FailurePolicy policy = policy_with(3);
  policy.max_total_restarts = 5;
  EXPECT_EQ(restarts_of(policy), 5);
  policy.max_restarts = 0;
  EXPECT_EQ(restarts_of(policy), 5);
}

TEST(RestartBudget, TotalLimitIncludesChargedRestarts) {
  api::FailurePolicy policy = policy_with(2);
  policy.max_total_restarts = 3;
  FailingJob job(policy);
  EXPECT_EQ(job.fail({10, 5}).charged, 0);
  EXPECT_EQ(job.fail({10, 5}).charged, 1);
  EXPECT_EQ(job.fail({20, 5}).charged, 0);
  EXPECT_EQ(job.fail({30, 5}).message, "3 of 3 restarts are used up, those after progress included");
}

// Otherwise, numbers that alternate would be progress for ever.
TEST(RestartBudget, KeepsTheHighestStepAndTheNewestCheckpoint) {
  FailingJob job(policy_with(5));
  EXPECT_EQ(job.fail({100, 0}).charged, 0);
  EXPECT_EQ(job.fail({10, 50}).charged, 0);
  const api::AfterProgress last = *job.status().restarts.after_progress;
  EXPECT_EQ(last.step, 100);
  EXPECT_EQ(last.checkpoint_step, 50);
  EXPECT_EQ(last.failures, 1);
  EXPECT_EQ(job.fail({100, 0}).charged, 1);
  EXPECT_EQ(job.status().restarts.after_progress->failures, 2);
  EXPECT_EQ(job.fail({10, 50}).charged, 1);
}

TEST(RestartBudget, FailuresBeginAgainWithANewCheckpoint) {
  FailingJob job(policy_with(5));
  for (int i = 0; i < 3; ++i) job.fail({100, 0});
  EXPECT_EQ(job.status().restarts.after_progress->failures, 3);
  EXPECT_EQ(job.fail({100, 50}).after_progress.failures, 1);
}

// An older CRD drops the field in each write.
TEST(RestartBudget, ChargesFailuresIfAfterProgressIsLost) {
  const BudgetRequest one_pod{.failures = 1, .is_group_restart = false};
  for (const BudgetRequest& request : {BudgetRequest{}, one_pod}) {
    FailingJob job(policy_with(2));
    EXPECT_EQ(job.fail({10, 5}, request).charged, 0);
    job.status().restarts.after_progress.reset();
    EXPECT_EQ(job.fail({20, 5}, request).charged, 1);
    job.status().restarts.after_progress.reset();
    EXPECT_EQ(job.fail({30, 5}, request).charged, 1);
    job.status().restarts.after_progress.reset();
    EXPECT_EQ(job.fail({40, 5}, request).reason, "MaxRestartsExceeded");
  }
}

TEST(RestartBudget, ReadsTheStepFromTheRecordsIfAfterProgressIsLost) {
  FailingJob job(policy_with(5));
  api::Status& status = job.status();
  status.restarts.total = 3;
  status.attempts.resize(3);
  status.attempts[0].step = 60;
  status.attempts[1].step = 50;
  status.attempts[2].step = 90;
  status.attempts[2].reason = "Grown";
  EXPECT_EQ(last_progress(status).step, 60) << "a change of the size is not a failure";
  EXPECT_EQ(job.fail({40, 5}).charged, 1);
  EXPECT_EQ(status.restarts.after_progress->step, 60);
  EXPECT_EQ(job.fail({61, 5}).charged, 0) << "the field is known again";
}

TEST(RestartBudget, ReplacedPodsAreChargedOnce) {
  FailingJob job(policy_with(5));
  const BudgetRequest two_pods{.failures = 2, .is_group_restart = false};
  EXPECT_EQ(job.fail({10, 5}, two_pods).after_progress.count, 2);
  EXPECT_EQ(job.fail({10, 5}, two_pods).charged, 2);
  EXPECT_EQ(job.status().recoveries->charged, 2);
  EXPECT_EQ(job.status().restarts.charged, 0);
  EXPECT_EQ(job.fail({10, 5}).charged, 1);
  EXPECT_EQ(job.status().restarts.after_progress->failures, 1) << "replacements are no failures of the group";
}

// The launchers limit them, in each attempt.
TEST(RestartBudget, RestartsInPodsAreNotCharged) {
  FailingJob job(policy_with(5));
  job.status().in_pod_restarts.emplace().attempt_total = 3;
  job.status().recoveries.emplace().attempt_total = 3;
  EXPECT_EQ(job.fail({0, 0}).charged, 1);
}

TEST(RestartBudget, SurvivesAnyStoredNumbers) {
  constexpr int kMax = std::numeric_limits<int>::max();
  api::FailurePolicy policy = policy_with(kMax);
  policy.max_total_restarts = kMax;
  policy.max_failures_at_step = kMax;
  FailingJob job(policy);
  api::Status& status = job.status();
  status.restarts.charged = kMax;
  status.restarts.after_progress = api::AfterProgress{.count = kMax, .step = 1, .checkpoint_step = 1, .failures = kMax};
  api::Recoveries& recoveries = status.recoveries.emplace();
  recoveries.charged = kMax;
  recoveries.pods = -kMax;
  EXPECT_EQ(job.fail({1, 1}).reason, "NoProgress");
  EXPECT_EQ(job.fail({2, 1}).reason, "MaxRestartsExceeded");
  EXPECT_EQ(total_restart_limit(policy_with(-kMax)), 0);
}

}  // namespace
}  // namespace oarlock::test
