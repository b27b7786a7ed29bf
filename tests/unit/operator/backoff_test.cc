#include "operator/core/failure.h"

#include <gtest/gtest.h>

#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using std::chrono::seconds;

// A status that records attempts of these lengths, the newest last.
api::Status failed_after(const std::vector<int>& lengths) {
  api::Status status;
  status.phase = api::Phase::kRestarting;
  for (const int length : lengths) {
    api::AttemptRecord record;
    record.start_time = at_second(1000);
    record.end_time = at_second(1000 + length);
    status.attempts.push_back(record);
  }
  return status;
}

TEST(Backoff, DoublesAfterEachConsecutiveQuickFailure) {
  const control::Job job = JobBuilder().backoff_seconds(10);
  const auto delay = [&](const std::vector<int>& lengths) {
    return control::restart_delay(job, failed_after(lengths)).count();
  };
  EXPECT_EQ(delay({}), 0);
  EXPECT_EQ(delay({1}), 0) << "the first restart is immediate";
  EXPECT_EQ(delay({1, 1}), 10);
  EXPECT_EQ(delay({1, 1, 1}), 20);
  EXPECT_EQ(delay({1, 1, 1, 1}), 40);
  EXPECT_EQ(delay(std::vector<int>(10, 1)), 300) << "at most five minutes";
  EXPECT_EQ(delay({1, 1, 600}), 0) << "the last attempt was not a quick failure";
  EXPECT_EQ(delay({1, 1, 599}), 20);
  EXPECT_EQ(delay({1, 1, 3600, 5}), 0) << "only consecutive quick failures count";
  EXPECT_EQ(delay({1, 1, 3600, 5, 5}), 10);
}

TEST(Backoff, UsesBackoffSeconds) {
  control::Job job = JobBuilder().backoff_seconds(0);
  EXPECT_EQ(control::restart_delay(job, failed_after(std::vector<int>(10, 1))), seconds(0));
  EXPECT_FALSE(control::restart_time(job, failed_after({1, 1}), at_second(1000)));
  job.spec.failure_policy.backoff_seconds = 3600;
  EXPECT_EQ(control::restart_delay(job, failed_after({1, 1, 1, 1})), seconds(3600)) << "longer than the usual limit";
}

TEST(Backoff, StartsAtTheEndOfTheAttempt) {
  const control::Job job = JobBuilder().backoff_seconds(10);
  api::Status status = failed_after({1, 2});
  EXPECT_EQ(control::restart_time(job, status, at_second(1002)), at_second(1012));
  status.phase = api::Phase::kPending;  // resumed: starts immediately
  EXPECT_FALSE(control::restart_time(job, status, at_second(1002)));
}

TEST(Backoff, TimeOfAWrongClockDelaysNothing) {
  const api::Status status = failed_after({1, 2});  // ended at second 1002
  EXPECT_EQ(control::restart_time(JobBuilder().backoff_seconds(10), status, at_second(1002 - 60)), at_second(1012));
  EXPECT_EQ(control::restart_time(JobBuilder().backoff_seconds(10), status, at_second(1002 - 61)),
            at_second(1002 - 61));
}

}  // namespace
}  // namespace oarlock::test
