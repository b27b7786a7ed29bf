// The controller: when progress is polled, written to the status, and logged.
#include "operator/shell/controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "api/rules.h"
#include "tests/unit/operator/controller_fixture.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ControllerTest, ADeletedJobIsNotPolledOrDelayed) {
  Plan until_deadline;
  until_deadline.requeue_after = std::chrono::seconds(api::rules::kMaxSeconds);
  plan(until_deadline);
  reconcile_now();
  EXPECT_EQ(queue_.delayed(), 1u);
  poller_.watch(key_, job_.metadata.uid, "10.0.0.1", 9400);
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "DELETED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  ASSERT_EQ(poller_.active_jobs(), 1u);
  reconcile_now();
  EXPECT_EQ(poller_.active_jobs(), 0u);
  EXPECT_EQ(queue_.delayed(), 0u) << "each deleted job would take memory until its deadline";
}

TEST_F(ControllerTest, AFinishedJobIsNotPolled) {
  const auto poll = [&] { poller_.watch(key_, job_.metadata.uid, "10.0.0.1", 9400); };
  poll();
  job_.status.phase = api::Phase::kComplete;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  ASSERT_EQ(poller_.active_jobs(), 1u);
  reconcile_now();
  EXPECT_EQ(poller_.active_jobs(), 0u);
}

TEST_F(ControllerTest, LimitsProgressWritesWithoutLosingTheLast) {
  for (int step = 1; step <= ProgressWriteLimiter::kBurst; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
  const int before = decisions_;
  for (int step = 100; step < 150; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  EXPECT_EQ(decisions_, before + 50);
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst)) << "its turn has not come";
  advance(200ms);
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst) + 1)
      << "it is written though nothing has happened";
}

// A rank may report another size of its group in each poll.
TEST_F(ControllerTest, LimitsWritesOfTheNodesThatTrain) {
  api::GroupSize& size = job_.status.elastic.emplace();
  size.nodes = 2;
  size.active_nodes = 2;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.job(key_)->status.elastic.has_value(); }));
  Plan shrunk;
  PatchStatus patch{job_.status};
  patch.status.elastic->active_nodes = 1;
  shrunk.actions.emplace_back(patch);
  shrunk.actions.emplace_back(EmitEvent{});
  plan(shrunk);
  for (int i = 0; i < 2 * ProgressWriteLimiter::kBurst; ++i) reconcile_now();
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
}

// A readiness probe may change its mind each second.
TEST_F(ControllerTest, LimitsWritesOfTheNumberOfReadyPods) {
  for (int i = 1; i <= 2 * ProgressWriteLimiter::kBurst; ++i) {
    PatchStatus patch{job_.status};
    patch.status.nodes.ready = i;
    patch.status.nodes.summary = std::to_string(i) + "/1";
    Plan flapped;
    flapped.actions.emplace_back(patch);
    plan(flapped);
    reconcile_now();
  }
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
}

TEST_F(ControllerTest, OtherStatusChangesAreNotRateLimited) {
  for (int step = 1; step <= 2 * ProgressWriteLimiter::kBurst; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  ASSERT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
  Plan stalled = progress(100);
  std::get<PatchStatus>(stalled.actions[0]).status.phase = api::Phase::kStalled;
  plan(stalled);
  reconcile_now();
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst) + 1);
  plan({});
  advance(1h);
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst) + 1) << "it was written with the phase";
}

class ControllerLogTest : public ControllerTest {
 protected:
  ControllerLogTest() : ControllerTest(Logger(LogFormat::kJson, LogLevel::kInfo)) {}
};

TEST_F(ControllerLogTest, DoesNotLogProgressUpdates) {
  ::testing::internal::CaptureStderr();
  for (int step = 1; step <= 50; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  const std::string progress_lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(progress_lines, IsEmpty());
  ::testing::internal::CaptureStderr();
  Plan other = create_pod();
  other.reason = "missing: 1 object";
  plan(other);
  reconcile_now();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("missing: 1 object"));
}

}  // namespace
}  // namespace oarlock::control
