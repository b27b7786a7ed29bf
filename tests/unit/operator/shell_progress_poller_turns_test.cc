// How jobs share the threads and the rate of the poller.
#include "operator/shell/progress.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/unit/operator/progress_fixture.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using kube::ObjectKey;

TEST_F(ProgressPollerTest, UnresponsiveRanksUseSlowThreadsOnly) {
  start({.interval = 1ms,
         .timeout = 1s,
         .prompt = 1h,  // a machine that is busy does not make the good one slow
         .max_interval = 1ms,
         .rate = 1e6,
         .threads = 4,
         .slow_threads = 2});
  ranks_.set_status(url(100), at_step(1));
  poller_->watch({"ns", "good"}, "u", address(100), 9400);
  ASSERT_TRUE(eventually([&] { return news_ == 1; }));
  for (int i = 0; i < 10; ++i) {
    ranks_.hold(url(i));
    poller_->watch({"ns", std::to_string(i)}, "u", address(i), 9400);
  }
  ASSERT_TRUE(eventually([&] {
    int held = 0;
    for (int i = 0; i < 10; ++i) held += ranks_.in_flight(url(i));
    return held == 2;
  }));
  // The default-deny NetworkPolicy of others costs a job that answers nothing.
  const int before = ranks_.polls(url(100));
  EXPECT_TRUE(eventually([&] { return ranks_.polls(url(100)) > before + 20; }));
  EXPECT_LE(ranks_.most_at_once(), 3) << "two silent ones and the good one";
  poller_->stop();  // does not wait for those that hang
}

TEST_F(ProgressPollerTest, UnreachableJobsOfManyNamespacesDoNotDelayNewOnes) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 1ms, .rate = 1e6, .threads = 4, .slow_threads = 3});
  for (int i = 0; i < 100; ++i) poller_->watch({"ns-" + std::to_string(i), "silent"}, "u", address(i), 9400);
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 100; ++i) {
      if (!poller_->latest({"ns-" + std::to_string(i), "silent"}, "u").last_poll) return false;
    }
    return true;
  }));
  // From now on they do not respond before the timeout.
  for (int i = 0; i < 100; ++i) ranks_.hold(url(i));
  const auto held = [&] {
    int count = 0;
    for (int i = 0; i < 100; ++i) count += ranks_.in_flight(url(i));
    return count;
  };
  ASSERT_TRUE(eventually([&] { return held() == 2; }));
  ranks_.set_status(url(200), at_step(1));
  poller_->watch(kPolledJob, "u", address(200), 9400);
  EXPECT_TRUE(eventually([&] { return step() == 1; }));
  EXPECT_EQ(held(), 2);
}

TEST_F(ProgressPollerTest, SlowThreadsServeNamespacesRoundRobin) {
  start({.interval = 1h, .timeout = 1s, .max_interval = 1h, .rate = 1e6, .threads = 2, .slow_threads = 1});
  ranks_.hold(url(0));
  for (int i = 0; i < 100; ++i) poller_->watch({"blocked", std::to_string(i)}, "u", address(i), 9400);
  ASSERT_TRUE(eventually([&] {
    int held = 0;
    for (int i = 0; i < 100; ++i) held += ranks_.polls(url(i)) + ranks_.in_flight(url(i));
    return held > 0;
  }));
  ranks_.set_status(url(200), at_step(1));
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(0)) == 1; }));  // the thread is busy with one of the hundred
  const size_t before = ranks_.log().size();
  poller_->watch({"other", "good"}, "u", address(200), 9400);
  // Were they served in order, all of the hundred that were not polled yet would come first.
  for (int i = 100; i < 150; ++i) poller_->watch({"blocked", std::to_string(i)}, "u", address(i), 9400);
  ranks_.hold(url(0), false);
  ASSERT_TRUE(eventually([&] { return news_ == 1; }));
  const std::vector<std::string> log = ranks_.log();
  const auto good = std::find(log.begin(), log.end(), url(200)) - log.begin();
  EXPECT_LE(good, static_cast<std::ptrdiff_t>(before) + 1) << "it is polled next";
}

TEST_F(ProgressPollerTest, RequestForACheckpointPrecedesAllOtherPolls) {
  start({.interval = 1h, .timeout = 1s, .max_interval = 1h, .rate = 1e6, .threads = 2, .slow_threads = 1});
  ranks_.hold(url(0));
  poller_->watch({"ns", "0"}, "u", address(0), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(0)) == 1; }));
  for (int i = 1; i < 100; ++i) poller_->watch({"ns", std::to_string(i)}, "u", address(i), 9400);
  const size_t before = ranks_.log().size();
  poller_->watch({"ns", "50"}, "u", address(50), 9400, 7);
  ranks_.hold(url(0), false);
  ASSERT_TRUE(eventually([&] { return ranks_.log().size() > before + 2; }));
  const std::vector<std::string> log = ranks_.log();
  const auto requested = std::find(log.begin(), log.end(), url(50)) - log.begin();
  EXPECT_LE(requested, static_cast<std::ptrdiff_t>(before) + 1) << "it is polled next";
  EXPECT_EQ(ranks_.request(url(50)), 7);
}

TEST_F(ProgressPollerTest, NewJobPrecedesFailedJobsOfItsNamespace) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 1ms, .rate = 1e6, .threads = 2, .slow_threads = 1});
  for (int i = 0; i < 20; ++i) poller_->watch({"ns", std::to_string(i)}, "u", address(i), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(0)) > 0 && ranks_.log().size() > 40; }));  // all of them fail
  ranks_.hold(url(0));
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(0)) == 1; }));
  const auto long_due = std::chrono::steady_clock::now() + 5ms;
  ASSERT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > long_due; }));
  const size_t before = ranks_.log().size();
  ranks_.set_status(url(200), at_step(1));
  poller_->watch(kPolledJob, "u", address(200), 9400);
  ranks_.hold(url(0), false);
  ASSERT_TRUE(eventually([&] { return step() == 1; }));
  EXPECT_EQ(ranks_.log().at(before + 1), url(200));
}

TEST_F(ProgressPollerTest, FinishedJobsDoNotSlowDownPolling) {
  // At 20 polls a second a thousand jobs would be polled every 50 s; one is polled as often as it may be.
  start({.interval = 1ms, .timeout = 1s, .max_interval = 1s, .rate = 20, .threads = 2, .slow_threads = 1});
  for (int i = 0; i < 1000; ++i) {
    const ObjectKey job{"ns", "finished-" + std::to_string(i)};
    poller_->watch(job, "u", address(i), 9400);
    i % 2 == 0 ? poller_->pause(job) : poller_->forget(job);
  }
  EXPECT_EQ(poller_->active_jobs(), 0u);
  ranks_.set_status("http://10.9.9.9:9400", at_step(1));
  poller_->watch(kPolledJob, "u", "10.9.9.9", 9400);
  EXPECT_EQ(poller_->active_jobs(), 1u);
  EXPECT_TRUE(eventually([&] { return ranks_.polls("http://10.9.9.9:9400") >= 10; }));
}

TEST_F(ProgressPollerTest, ManyJobsShareTheRate) {
  const auto begin = std::chrono::steady_clock::now();
  start({.interval = 1ms, .timeout = 1s, .prompt = 1h, .max_interval = 1s, .rate = 500, .threads = 2});
  for (int i = 0; i < 50; ++i) {
    ranks_.set_status(url(i), at_step(1));
    poller_->watch({"ns", std::to_string(i)}, "u", address(i), 9400);
  }
  EXPECT_TRUE(eventually([&] { return ranks_.log().size() >= 200; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 390ms) << "200 polls at 500 per second";
  for (int i = 0; i < 50; ++i) EXPECT_GE(ranks_.polls(url(i)), 2) << i;
}

// Jobs that are always due, those of the namespace "many" or those that do not respond, get their share of the rate
// only.
class PollerTurnsTest : public ProgressPollerTest {
 protected:
  void expect_half_of_the_polls(const std::string& namespace_name, bool others_respond) {
    start({.interval = 1ms, .timeout = 1s, .prompt = 1h, .max_interval = 1ms, .rate = 500, .threads = 2});
    ranks_.set_status(url(200), at_step(1));
    poller_->watch({namespace_name, "prompt"}, "u", address(200), 9400);
    ASSERT_TRUE(eventually([&] { return news_ == 1; }));
    for (int i = 0; i < 100; ++i) {
      if (others_respond) ranks_.set_status(url(i), at_step(1));
      poller_->watch({"many", std::to_string(i)}, "u", address(i), 9400);
    }
    const size_t before = ranks_.log().size();
    const int polls_before = ranks_.polls(url(200));
    ASSERT_TRUE(eventually([&] { return ranks_.log().size() >= before + 300; }));
    const int polls = ranks_.polls(url(200)) - polls_before;
    EXPECT_GE(polls, 30) << "about half of them, or a third while the other namespace has two groups";
  }
};

TEST_F(PollerTurnsTest, NamespaceOfManyJobsDoesNotDelayOthers) { expect_half_of_the_polls("few", true); }
TEST_F(PollerTurnsTest, UnresponsiveJobsDoNotDelayOtherNamespaces) { expect_half_of_the_polls("few", false); }
TEST_F(PollerTurnsTest, UnresponsiveJobsDoNotDelayPromptOnesOfTheirNamespace) {
  expect_half_of_the_polls("many", false);
}

}  // namespace
}  // namespace oarlock::control
