// The rate limit of status writes whose only change is progress.
#include "operator/shell/progress.h"

#include <gmock/gmock.h>

#include <map>

#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using kube::ObjectKey;

class ProgressWriteLimiterTest : public ::testing::Test {
 protected:
  static ObjectKey job(int i) { return {"ns", std::to_string(i)}; }

  // Every job has news every 100 ms for so long. Returns the writes of each.
  std::map<int, int> run(int jobs, std::chrono::milliseconds duration) {
    std::map<int, int> writes;
    for (auto passed = 0ms; passed < duration; passed += 100ms) {
      for (int i = 0; i < jobs; ++i) {
        if (!budget_.time_until_turn(job(i))) ++writes[i];
      }
      clock_->advance(100ms);
    }
    return writes;
  }
  static int sum(const std::map<int, int>& writes) {
    int out = 0;
    for (const auto& [job, count] : writes) out += count;
    return out;
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  ProgressWriteLimiter budget_{clock_, 5};
};

TEST_F(ProgressWriteLimiterTest, FewJobsWriteImmediately) {
  for (int i = 0; i < ProgressWriteLimiter::kBurst; ++i) EXPECT_FALSE(budget_.time_until_turn(job(i))) << i;
  EXPECT_EQ(budget_.time_until_turn(job(99)), 200ms);
  EXPECT_EQ(budget_.time_until_turn(job(99)), 200ms) << "its turn is reserved once";
  EXPECT_EQ(budget_.time_until_turn(job(98)), 400ms);
  clock_->advance(200ms);
  EXPECT_FALSE(budget_.time_until_turn(job(99)));
  EXPECT_EQ(budget_.time_until_turn(job(98)), 200ms);
}

TEST_F(ProgressWriteLimiterTest, LimitsWritesOfAllJobsTogether) {
  for (const int jobs : {20, 1000}) {
    const std::map<int, int> writes = run(jobs, 60s);
    EXPECT_LE(sum(writes), ProgressWriteLimiter::kBurst + 60 * 5 + 1) << jobs;
    EXPECT_GE(sum(writes), 60 * 5 - 1) << jobs;
  }
}

TEST_F(ProgressWriteLimiterTest, JobsTakeTurns) {
  const std::map<int, int> writes = run(100, 100s);  // 5 a second: each of them every 20 s
  ASSERT_EQ(writes.size(), 100u);
  for (const auto& [job, count] : writes) {
    EXPECT_GE(count, 4) << job;
    EXPECT_LE(count, 6) << job;
  }
}

TEST_F(ProgressWriteLimiterTest, ForgetCancelsTurn) {
  run(ProgressWriteLimiter::kBurst, 100ms);
  EXPECT_TRUE(budget_.time_until_turn(job(50)));
  budget_.forget(job(50));
  clock_->advance(1h);
  for (int i = 0; i < ProgressWriteLimiter::kBurst; ++i) EXPECT_FALSE(budget_.time_until_turn(job(100 + i)));
  EXPECT_TRUE(budget_.time_until_turn(job(50))) << "not the one that it had";
}

// A tenant's ranks can report progress and cause other status writes in turn, which cancels a place each time.
TEST_F(ProgressWriteLimiterTest, ForgottenJobsDelayNoOtherJob) {
  run(ProgressWriteLimiter::kBurst, 100ms);
  for (int i = 0; i < 1000; ++i) {
    budget_.time_until_turn(job(i));
    budget_.forget(job(i));
  }
  EXPECT_LE(budget_.time_until_turn(ObjectKey{"other", "a"}), 200ms);
}

TEST_F(ProgressWriteLimiterTest, NamespacesTakeTurns) {
  for (int i = 0; i < 1000; ++i) budget_.time_until_turn(job(i));
  const ObjectKey other{"other", "a"};
  EXPECT_LE(budget_.time_until_turn(other), 400ms);
  int writes = 0;
  for (auto passed = 0ms; passed < 10s; passed += 100ms) {
    for (int i = 0; i < 1000; ++i) budget_.time_until_turn(job(i));
    if (!budget_.time_until_turn(other)) ++writes;
    clock_->advance(100ms);
  }
  EXPECT_GE(writes, 24) << "of 50, because there are two namespaces";
  EXPECT_LE(writes, 26);
}

TEST_F(ProgressWriteLimiterTest, AbsentJobsLoseTheirPlaces) {
  run(ProgressWriteLimiter::kBurst, 100ms);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(budget_.time_until_turn(job(i)));  // and never again
  EXPECT_TRUE(budget_.time_until_turn(job(500)));
  clock_->advance(25s);
  EXPECT_FALSE(budget_.time_until_turn(job(500)));
}

}  // namespace
}  // namespace oarlock::control
