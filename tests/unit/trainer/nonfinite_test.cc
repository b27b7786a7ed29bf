// Counting steps that are not finite, and the policy that ends a run.
#include "trainer/engine/nonfinite.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(SkippedShare, EndsRunAboveMaxShare) {
  const NonfiniteConfig policy{.loss = NonfiniteLoss::kSkip, .max_consecutive = 100, .max_share = 0.5};
  EXPECT_FALSE(check_share(policy, 50, 25, /*ended=*/true));
  const auto stop = check_share(policy, 50, 26, /*ended=*/true);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->error.code, ExitCode::kDataErr);
  EXPECT_THAT(stop->error.message, AllOf(HasSubstr("26 of the 50 steps"), HasSubstr("nonfinite.max_share is 0.5")));
  EXPECT_FALSE(check_share(policy, 99, 98, /*ended=*/false)) << "fp16 adjusts its loss scale in the first steps";
  EXPECT_TRUE(check_share(policy, 100, 51, /*ended=*/false));
  EXPECT_FALSE(check_share(policy, 100, 50, /*ended=*/false));
  EXPECT_FALSE(check_share(policy, 0, 0, /*ended=*/true));
  const NonfiniteConfig any{.loss = NonfiniteLoss::kSkip, .max_share = 1};
  EXPECT_FALSE(check_share(any, 50, 50, /*ended=*/true));
}

TEST(NonfiniteLoss, ReportsStepOfFirstOccurrence) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  StepReading reading;
  reading.first_nonfinite_loss = 13;
  EXPECT_THAT(check_finite({}, 20, nan, reading)->error.message, HasSubstr("not finite at step 13 first"));
  reading.first_nonfinite_loss = 20;
  EXPECT_THAT(check_finite({}, 20, nan, reading)->error.message, testing::Not(HasSubstr("first")));
}

TEST(NonfiniteLoss, EndsRunAfterMaxConsecutive) {
  const NonfiniteConfig policy{.loss = NonfiniteLoss::kSkip, .max_consecutive = 4};
  StepReading reading;
  reading.skipped = reading.skipped_in_a_row = 3;
  EXPECT_FALSE(check_finite(policy, 20, 1.0, reading));
  reading.skipped = reading.skipped_in_a_row = 4;
  const auto stop = check_finite(policy, 20, 1.0, reading);
  ASSERT_TRUE(stop);
  EXPECT_THAT(stop->error.message, HasSubstr("the last 4 steps up to 20"));
}

at::Tensor scalar(float value) { return at::full({}, value, at::kFloat); }

NonfiniteSteps::Reading read(NonfiniteSteps& steps) {
  std::vector<double> values;
  for (const at::Tensor& value : steps.on_device()) values.push_back(value.item<double>());
  EXPECT_EQ(values.size(), NonfiniteSteps::kValues);
  return steps.read(values.data());
}

TEST(NonfiniteSteps, CountsAndRecordsFirst) {
  NonfiniteSteps steps(at::kCPU);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float loss : {1.0F, nan, 2.0F, nan, nan}) steps.count(scalar(loss), scalar(loss == 2 ? 1 : 0));
  const NonfiniteSteps::Reading first = read(steps);
  EXPECT_EQ(first.loss.steps, 3);
  EXPECT_EQ(first.loss.in_a_row, 2);
  EXPECT_EQ(first.loss.first, 3) << "steps before the last one";
  EXPECT_EQ(first.skipped.steps, 1);
  EXPECT_EQ(first.skipped.in_a_row, 0);
  EXPECT_EQ(first.skipped.first, 2);
  steps.count(scalar(1), scalar(1));
  steps.count(scalar(1), {});
  const NonfiniteSteps::Reading second = read(steps);
  EXPECT_EQ(second.loss.steps, 3);
  EXPECT_FALSE(second.loss.first) << "none since the last reading";
  EXPECT_EQ(second.skipped.steps, 2);
  EXPECT_EQ(second.skipped.first, 1);
}

TEST(NonfiniteSteps, CountsOverRestarts) {
  NonfiniteSteps before(at::kCPU);
  before.count(scalar(1), scalar(1));
  read(before);
  NonfiniteSteps after(at::kCPU);
  ASSERT_TRUE(after.restored(before.values()));
  EXPECT_EQ(after.skipped_in_run(), 1);
  after.count(scalar(1), scalar(1));
  read(after);
  EXPECT_EQ(after.skipped_in_run(), 2);
  EXPECT_EQ(after.values().at("skipped"), 2);
}

// The state of a rank that another one takes may be older than its last reading.
TEST(NonfiniteSteps, StateIncludesStepsThatWereNotRead) {
  NonfiniteSteps donor(at::kCPU);
  donor.count(scalar(1), scalar(1));
  EXPECT_EQ(donor.values().at("skipped"), 1);
  NonfiniteSteps behind(at::kCPU);
  behind.count(scalar(1), scalar(1));
  donor.count(scalar(1), scalar(1));
  ASSERT_TRUE(behind.restored(donor.values()));
  EXPECT_EQ(behind.values(), donor.values());
  read(behind);
  EXPECT_EQ(behind.skipped_in_run(), 2);
}

// Otherwise, a rank that was replaced would end the run later than the others, and a job that restarts often, never.
TEST(NonfiniteSteps, AProcessThatContinuesTheRunCountsItsSkippedStepsInARow) {
  NonfiniteSteps before(at::kCPU);
  before.count(scalar(1), scalar(1));
  before.count(scalar(1), scalar(1));
  NonfiniteSteps after(at::kCPU);
  ASSERT_TRUE(after.restored(before.values()));
  after.count(scalar(1), scalar(1));
  EXPECT_EQ(read(after).skipped.in_a_row, 3);
  after.count(scalar(1), scalar(0));
  EXPECT_EQ(read(after).skipped.in_a_row, 0);
  ASSERT_TRUE(after.restored({{"skipped", 1}}));  // of a checkpoint without the number
  EXPECT_EQ(read(after).skipped.in_a_row, 0);
}

}  // namespace
}  // namespace oarlock
