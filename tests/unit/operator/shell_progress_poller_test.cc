#include "operator/shell/progress.h"

#include <gmock/gmock.h>

#include "tests/unit/operator/progress_fixture.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;

TEST_F(ProgressPollerTest, PollsRepeatedlyAndReportsChangesOnly) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  start();
  EXPECT_EQ(step(), -1);
  poller_->watch(kPolledJob, "u", "10.0.0.1", 9400);
  EXPECT_TRUE(eventually([&] { return ranks_.polls("http://10.0.0.1:9400") >= 5; }));
  EXPECT_EQ(step(), 5);
  EXPECT_EQ(news_, 1);
  ranks_.set_status("http://10.0.0.1:9400", at_step(6));
  EXPECT_TRUE(eventually([&] { return step() == 6; }));
  EXPECT_TRUE(eventually([&] { return news_ == 2; }));
}

TEST_F(ProgressPollerTest, NewTimesAloneDoNotCountAsChange) {
  RankStatus status = at_step(5);
  status.updated_at = "2026-01-01T00:00:00Z";
  ranks_.set_status(url(1), status);
  start();
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return news_ == 1; }));
  status.updated_at = "2026-01-01T00:00:05Z";
  status.usage_seconds.emplace()[UsageClass::kProductive] = 5;
  ranks_.set_status(url(1), status);
  const auto updated_at = [&] { return poller_->latest(kPolledJob, "u").last_status->updated_at; };
  ASSERT_TRUE(eventually([&] { return updated_at() == status.updated_at; }));
  const int before = ranks_.polls(url(1));
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) > before + 3; }));
  EXPECT_EQ(news_, 1);
}

// Twice the wait after each failure: 2 + 4 + ... + 256 ms are eight polls, however fast the machine is.
TEST_F(ProgressPollerTest, BacksOffWhenRankDoesNotRespond) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 1h, .rate = 1e6, .threads = 2, .slow_threads = 1});
  const auto end = std::chrono::steady_clock::now() + 400ms;
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > end && ranks_.polls(url(1)) >= 2; }));
  EXPECT_LE(ranks_.polls(url(1)), 12);
}

TEST_F(ProgressPollerTest, KeepsLastStatusWithoutResponsesAndWhilePaused) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  start();
  poller_->watch(kPolledJob, "u", "10.0.0.1", 9400);
  ASSERT_TRUE(eventually([&] { return step() == 5; }));
  ranks_.set_status("http://10.0.0.1:9400", std::nullopt);
  const int before = ranks_.polls("http://10.0.0.1:9400");
  EXPECT_TRUE(eventually([&] { return ranks_.polls("http://10.0.0.1:9400") > before + 2; }));
  EXPECT_EQ(step(), 5);
  poller_->pause(kPolledJob);
  EXPECT_EQ(poller_->active_jobs(), 0u);
  EXPECT_EQ(step(), 5);
}

// A program without /statusz, whose launcher reports its restarts.
TEST_F(ProgressPollerTest, ReceivesInPodRestartsWithoutAStatusOfARank) {
  const LauncherStatus restarts{.attempt = 2,
                                .in_pod_restarts = {.total = 3, .seconds = 1, .rank = 1, .reason = "a\nb"}};
  ranks_.set_response(url(1), to_json(restarts));
  start();
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return poller_->latest(kPolledJob, "u").launcher.has_value(); }));
  const RankProbe probe = poller_->latest(kPolledJob, "u");
  EXPECT_EQ(probe.launcher->attempt, 2);
  EXPECT_EQ(probe.launcher->in_pod_restarts.total, 3);
  EXPECT_EQ(probe.launcher->in_pod_restarts.reason, "a b");
  EXPECT_FALSE(probe.last_status);
  EXPECT_FALSE(probe.last_poll->answered);
  EXPECT_TRUE(probe.last_poll->reachable);
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) > 3; }));
  EXPECT_EQ(news_, 1);
}

TEST_F(ProgressPollerTest, ReportsTimeAndResultOfLastPoll) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  start();
  const auto polls = [&] { return poller_->latest(kPolledJob, "u").last_poll; };
  poller_->watch(kPolledJob, "u", "10.0.0.1", 9400);
  const SystemTime begin = std::chrono::system_clock::now();
  EXPECT_TRUE(eventually([&] { return polls() && polls()->sent_at >= begin && polls()->answered; }));
  ranks_.set_status("http://10.0.0.1:9400", std::nullopt);
  EXPECT_TRUE(eventually([&] { return !polls()->answered; }));
  const SystemTime silent = std::chrono::system_clock::now();
  EXPECT_TRUE(eventually([&] { return polls()->sent_at >= silent; })) << "it is polls again and again";
  poller_->stop();
  poller_->watch(kPolledJob, "u", "10.0.0.2", 9400);
  EXPECT_FALSE(polls()) << "the other address was not polls yet";
  EXPECT_EQ(step(), 5);
}

TEST_F(ProgressPollerTest, NewAddressReplacesOldAndNewUidResets) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  ranks_.set_status("http://10.0.0.2:9400", at_step(1));
  start();
  poller_->watch(kPolledJob, "u", "10.0.0.1", 9400);
  ASSERT_TRUE(eventually([&] { return step() == 5; }));
  EXPECT_EQ(step("v"), -1) << "progress of another job of the same name";
  poller_->watch(kPolledJob, "u", "10.0.0.2", 9400);
  EXPECT_TRUE(eventually([&] { return step() == 1; }));
  ranks_.set_status("http://10.0.0.2:9400", std::nullopt);
  poller_->watch(kPolledJob, "v", "10.0.0.2", 9400);
  EXPECT_EQ(step("v"), -1);
  EXPECT_EQ(step("u"), -1);
  poller_->forget(kPolledJob);
  EXPECT_EQ(poller_->active_jobs(), 0u);
}

// With one thread: when the next poll is under way the late answer has been dealt with.
TEST_F(ProgressPollerTest, IgnoresLateResponseOfOldAddress) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 20ms, .rate = 1e6, .threads = 1, .slow_threads = 1});
  ranks_.set_status(url(1), at_step(5));
  ranks_.set_status(url(2), at_step(1));
  ranks_.hold(url(1));
  ranks_.hold(url(2));
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(1)) == 1; }));
  poller_->watch(kPolledJob, "u", address(2), 9400);  // the group was restarted
  ranks_.hold(url(1), false);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(2)) == 1; }));
  EXPECT_EQ(step(), -1);
  EXPECT_FALSE(poller_->latest(kPolledJob, "u").last_poll) << "the new address was not polled yet";
  EXPECT_EQ(news_, 0);
  ranks_.hold(url(2), false);
  EXPECT_TRUE(eventually([&] { return step() == 1; }));
}

TEST_F(ProgressPollerTest, IgnoresLateResponseAfterAddressReturned) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 20ms, .rate = 1e6, .threads = 1, .slow_threads = 1});
  ranks_.set_status(url(1), at_step(5));
  ranks_.hold(url(1));
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(1)) == 1; }));
  poller_->forget(kPolledJob);
  poller_->watch(kPolledJob, "v", address(1), 9400);  // the job was deleted and created again; the address is the same
  EXPECT_EQ(step("v"), -1);
  ranks_.set_status(url(1), std::nullopt);
  ranks_.hold(url(1), false);
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) >= 1 && poller_->latest(kPolledJob, "v").last_poll; }));
  EXPECT_EQ(step("v"), -1);
}

TEST_F(ProgressPollerTest, RecordsWhenStepWasFirstReceived) {
  ranks_.set_status(url(1), at_step(5));
  start();
  const SystemTime begin = std::chrono::system_clock::now();
  poller_->watch(kPolledJob, "u", address(1), 9400);
  const auto received = [&] { return poller_->latest(kPolledJob, "u").step_received_at; };
  ASSERT_TRUE(eventually([&] { return received().has_value(); }));
  const SystemTime first = *received();
  EXPECT_GE(first, begin);
  const int before = ranks_.polls(url(1));
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) > before + 5; }));
  EXPECT_EQ(received(), first);
  ranks_.set_status(url(1), at_step(6));
  ASSERT_TRUE(eventually([&] { return step() == 6; }));
  const SystemTime second = *received();
  EXPECT_GT(second, first);
  RankStatus same = at_step(6);  // after a restart in the pod, from a checkpoint of this step
  for (const char* phase : {"start", "train"}) {
    same.phase = phase;
    ranks_.set_status(url(1), same);
    ASSERT_TRUE(eventually([&] { return poller_->latest(kPolledJob, "u").last_status->phase == phase; }));
  }
  EXPECT_GT(*received(), second);
}

// The status of the job may be written between two polls only.
TEST_F(ProgressPollerTest, KeepsTheHighestStepOfAnAttempt) {
  start();
  RankStatus status = at_step(200);
  status.checkpoint_step = 150;
  ranks_.set_status(url(1), status);
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return step() == 200; }));
  status.step = status.checkpoint_step = 100;
  ranks_.set_status(url(1), status);
  ASSERT_TRUE(eventually([&] { return step() == 100; }));
  EXPECT_EQ(poller_->latest(kPolledJob, "u").highest, (api::HighestProgress{.step = 200, .checkpoint_step = 150}));
  status.attempt += 1;
  ranks_.set_status(url(1), status);
  ASSERT_TRUE(eventually([&] { return poller_->latest(kPolledJob, "u").last_status->attempt == status.attempt; }));
  EXPECT_EQ(poller_->latest(kPolledJob, "u").highest, (api::HighestProgress{.step = 100, .checkpoint_step = 100}));
}

TEST_F(ProgressPollerTest, BoundsAndSanitizesTexts) {
  RankStatus hostile = at_step(1);
  hostile.phase = "\x1b[31mtrain\n" + std::string(5000, 'x');
  hostile.updated_at = std::string(5000, '9');
  ranks_.set_status(url(1), hostile);
  start();
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return step() == 1; }));
  const RankStatus status = *poller_->latest(kPolledJob, "u").last_status;
  EXPECT_TRUE(status.phase.starts_with(" [31mtrain x")) << status.phase;
  EXPECT_LE(status.phase.size(), 60u);
  EXPECT_LE(status.updated_at.size(), 40u);
}

TEST_F(ProgressPollerTest, FormatsIpv6AddressesAsUrls) {
  ranks_.set_status("http://[fd00::1]:9400", at_step(3));
  start();
  poller_->watch(kPolledJob, "u", "fd00::1", 9400);
  EXPECT_TRUE(eventually([&] { return step() == 3; }));
}

// Also if the next poll of the job is not due for an hour.
TEST_F(ProgressPollerTest, SendsARequestForACheckpointImmediatelyAndRepeatsIt) {
  ranks_.set_status(url(1), at_step(1));
  start({.interval = 1h, .timeout = 1s, .max_interval = 1h, .rate = 1e6, .threads = 2, .slow_threads = 1});
  poller_->watch(kPolledJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) == 1; }));
  EXPECT_EQ(ranks_.request(url(1)), std::nullopt);
  ASSERT_TRUE(eventually([&] { return poller_->latest(kPolledJob, "u").last_poll.has_value(); }));
  poller_->watch(kPolledJob, "u", address(1), 9400, 7);
  ASSERT_TRUE(eventually([&] { return ranks_.request(url(1)) == 7; }));
  poller_->watch(kPolledJob, "u", address(1), 9400, 7);  // as each reconcile does
  EXPECT_EQ(ranks_.polls(url(1)), 2);
  ranks_.set_status(url(2), at_step(1));
  poller_->watch(kPolledJob, "u", address(2), 9400, 7);  // rank 0 has another address
  EXPECT_TRUE(eventually([&] { return ranks_.request(url(2)) == 7; }));
}

}  // namespace
}  // namespace oarlock::control
