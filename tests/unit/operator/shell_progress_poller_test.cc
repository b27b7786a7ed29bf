#include "operator/shell/progress.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using kube::ObjectKey;

const ObjectKey kJob{"ns", "j"};

// All ranks of the cluster: the response of each address, and how often it was polled.
class Ranks {
 public:
  void set_status(const std::string& url, const std::optional<RankStatus>& status) {
    set_response(url, status ? std::optional(to_json(*status)) : std::nullopt);
  }
  void set_response(const std::string& url, std::optional<std::string> body) {
    const std::lock_guard lock(mutex_);
    statuses_[url] = std::move(body);
  }
  int polls(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto it = polls_.find(url);
    return it == polls_.end() ? 0 : it->second;
  }
  int most_at_once() const { return most_; }
  // The request for a checkpoint in the last poll of this address.
  std::optional<int64_t> request(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto it = requests_.find(url);
    return it == requests_.end() ? std::nullopt : it->second;
  }
  // Polls of this address end when it is released, or when they are cancelled.
  void hold(const std::string& url, bool value = true) {
    const std::lock_guard lock(mutex_);
    held_[url] = value;
  }
  bool is_held(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto it = held_.find(url);
    return it != held_.end() && it->second;
  }
  int in_flight(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto it = in_flight_.find(url);
    return it == in_flight_.end() ? 0 : it->second;
  }
  std::vector<std::string> log() const {  // of finished polls
    const std::lock_guard lock(mutex_);
    return log_;
  }

  Connect connect() {
    return [this](const std::string& url) { return std::make_shared<Rank>(*this, url); };
  }

 private:
  class Rank final : public http::Transport {
   public:
    Rank(Ranks& ranks, std::string url) : ranks_(ranks), url_(std::move(url)) {}
    http::TransportResult<http::Response> send(const http::Request&, http::Milliseconds, std::stop_token) override {
      std::abort();
    }
    http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink, http::StreamLimits,
                                                 std::stop_token cancel) override {
      EXPECT_TRUE(request.target.starts_with("/statusz?")) << request.target;
      const StatusQuery query = parse_status_query(request.target.substr(request.target.find('?') + 1));
      EXPECT_TRUE(query.uid == "u" || query.uid == "v") << request.target;
      const int now = ++ranks_.at_once_;
      int most = ranks_.most_;
      while (most < now && !ranks_.most_.compare_exchange_weak(most, now)) {
      }
      const std::optional<std::string> status = ranks_.status(url_);  // before the delay
      ranks_.count_in_flight(url_, 1);
      while (ranks_.is_held(url_) && !cancel.stop_requested()) std::this_thread::yield();
      ranks_.count_in_flight(url_, -1);
      --ranks_.at_once_;
      const std::lock_guard lock(ranks_.mutex_);
      ++ranks_.polls_[url_];
      ranks_.requests_[url_] = query.checkpoint;
      ranks_.log_.push_back(url_);
      if (!status)
        return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kConnect, "connection refused"});
      if (!sink.write(*status))
        return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kRefused, ""});
      return http::Response{.status = 200, .body = "", .retry_after = {}};
    }

   private:
    Ranks& ranks_;
    const std::string url_;
  };

  std::optional<std::string> status(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto it = statuses_.find(url);
    return it == statuses_.end() ? std::nullopt : it->second;
  }
  void count_in_flight(const std::string& url, int by) {
    const std::lock_guard lock(mutex_);
    in_flight_[url] += by;
  }

  mutable std::mutex mutex_;
  std::map<std::string, bool> held_;
  std::map<std::string, int> in_flight_;
  std::vector<std::string> log_;
  std::map<std::string, std::optional<std::string>> statuses_;
  std::map<std::string, int> polls_;
  std::map<std::string, std::optional<int64_t>> requests_;
  std::atomic<int> at_once_ = 0;
  std::atomic<int> most_ = 0;
};

RankStatus at_step(int64_t step) {
  RankStatus status;
  status.step = step;
  return status;
}

std::string address(int i) { return "10.0.0." + std::to_string(i); }
std::string url(int i) { return "http://" + address(i) + ":9400"; }

template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class ProgressPollerTest : public ::testing::Test {
 protected:
  void start(ProgressOptions options = {
                 .interval = 2ms, .timeout = 1s, .max_interval = 20ms, .rate = 1e6, .threads = 2, .slow_threads = 1}) {
    poller_ = std::make_unique<ProgressPoller>(
        options, ranks_.connect(), [this](const ObjectKey&) { ++news_; }, std::make_shared<RealClock>());
    poller_->start();
  }
  int64_t step(const std::string& uid = "u") const {
    const RankProbe probe = poller_->latest(kJob, uid);
    return probe.last_status ? probe.last_status->step : -1;
  }
  Ranks ranks_;
  std::atomic<int> news_ = 0;
  std::unique_ptr<ProgressPoller> poller_;
};

TEST_F(ProgressPollerTest, PollsRepeatedlyAndReportsChangesOnly) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  start();
  EXPECT_EQ(step(), -1);
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
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
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return news_ == 1; }));
  status.updated_at = "2026-01-01T00:00:05Z";
  status.usage_seconds.emplace()[UsageClass::kProductive] = 5;
  ranks_.set_status(url(1), status);
  const auto updated_at = [&] { return poller_->latest(kJob, "u").last_status->updated_at; };
  ASSERT_TRUE(eventually([&] { return updated_at() == status.updated_at; }));
  const int before = ranks_.polls(url(1));
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) > before + 3; }));
  EXPECT_EQ(news_, 1);
}

// Twice the wait after each failure: 2 + 4 + ... + 256 ms are eight polls, however fast the machine is.
TEST_F(ProgressPollerTest, BacksOffWhenRankDoesNotRespond) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 1h, .rate = 1e6, .threads = 2, .slow_threads = 1});
  const auto end = std::chrono::steady_clock::now() + 400ms;
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > end && ranks_.polls(url(1)) >= 2; }));
  EXPECT_LE(ranks_.polls(url(1)), 12);
}

TEST_F(ProgressPollerTest, KeepsLastStatusWithoutResponsesAndWhilePaused) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  start();
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  ASSERT_TRUE(eventually([&] { return step() == 5; }));
  ranks_.set_status("http://10.0.0.1:9400", std::nullopt);
  const int before = ranks_.polls("http://10.0.0.1:9400");
  EXPECT_TRUE(eventually([&] { return ranks_.polls("http://10.0.0.1:9400") > before + 2; }));
  EXPECT_EQ(step(), 5);
  poller_->pause(kJob);
  EXPECT_EQ(poller_->active_jobs(), 0u);
  EXPECT_EQ(step(), 5);
}

// A program without /statusz, whose launcher reports its restarts.
TEST_F(ProgressPollerTest, ReceivesInPodRestartsWithoutAStatusOfARank) {
  const LauncherStatus restarts{.attempt = 2,
                                .in_pod_restarts = {.total = 3, .seconds = 1, .rank = 1, .reason = "a\nb"}};
  ranks_.set_response(url(1), to_json(restarts));
  start();
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return poller_->latest(kJob, "u").launcher.has_value(); }));
  const RankProbe probe = poller_->latest(kJob, "u");
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
  const auto polls = [&] { return poller_->latest(kJob, "u").last_poll; };
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  const SystemTime begin = std::chrono::system_clock::now();
  EXPECT_TRUE(eventually([&] { return polls() && polls()->sent_at >= begin && polls()->answered; }));
  ranks_.set_status("http://10.0.0.1:9400", std::nullopt);
  EXPECT_TRUE(eventually([&] { return !polls()->answered; }));
  const SystemTime silent = std::chrono::system_clock::now();
  EXPECT_TRUE(eventually([&] { return polls()->sent_at >= silent; })) << "it is polls again and again";
  poller_->stop();
  poller_->watch(kJob, "u", "10.0.0.2", 9400);
  EXPECT_FALSE(polls()) << "the other address was not polls yet";
  EXPECT_EQ(step(), 5);
}

TEST_F(ProgressPollerTest, NewAddressReplacesOldAndNewUidResets) {
  ranks_.set_status("http://10.0.0.1:9400", at_step(5));
  ranks_.set_status("http://10.0.0.2:9400", at_step(1));
  start();
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  ASSERT_TRUE(eventually([&] { return step() == 5; }));
  EXPECT_EQ(step("v"), -1) << "progress of another job of the same name";
  poller_->watch(kJob, "u", "10.0.0.2", 9400);
  EXPECT_TRUE(eventually([&] { return step() == 1; }));
  ranks_.set_status("http://10.0.0.2:9400", std::nullopt);
  poller_->watch(kJob, "v", "10.0.0.2", 9400);
  EXPECT_EQ(step("v"), -1);
  EXPECT_EQ(step("u"), -1);
  poller_->forget(kJob);
  EXPECT_EQ(poller_->active_jobs(), 0u);
}

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
  poller_->watch(kJob, "u", address(200), 9400);
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
  poller_->watch(kJob, "u", address(200), 9400);
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
  poller_->watch(kJob, "u", "10.9.9.9", 9400);
  EXPECT_EQ(poller_->active_jobs(), 1u);
  EXPECT_TRUE(eventually([&] { return ranks_.polls("http://10.9.9.9:9400") >= 10; }));
}

// With one thread: when the next poll is under way the late answer has been dealt with.
TEST_F(ProgressPollerTest, IgnoresLateResponseOfOldAddress) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 20ms, .rate = 1e6, .threads = 1, .slow_threads = 1});
  ranks_.set_status(url(1), at_step(5));
  ranks_.set_status(url(2), at_step(1));
  ranks_.hold(url(1));
  ranks_.hold(url(2));
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(1)) == 1; }));
  poller_->watch(kJob, "u", address(2), 9400);  // the group was restarted
  ranks_.hold(url(1), false);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(2)) == 1; }));
  EXPECT_EQ(step(), -1);
  EXPECT_FALSE(poller_->latest(kJob, "u").last_poll) << "the new address was not polled yet";
  EXPECT_EQ(news_, 0);
  ranks_.hold(url(2), false);
  EXPECT_TRUE(eventually([&] { return step() == 1; }));
}

TEST_F(ProgressPollerTest, IgnoresLateResponseAfterAddressReturned) {
  start({.interval = 1ms, .timeout = 1s, .max_interval = 20ms, .rate = 1e6, .threads = 1, .slow_threads = 1});
  ranks_.set_status(url(1), at_step(5));
  ranks_.hold(url(1));
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.in_flight(url(1)) == 1; }));
  poller_->forget(kJob);
  poller_->watch(kJob, "v", address(1), 9400);  // the job was deleted and created again; the address is the same
  EXPECT_EQ(step("v"), -1);
  ranks_.set_status(url(1), std::nullopt);
  ranks_.hold(url(1), false);
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) >= 1 && poller_->latest(kJob, "v").last_poll; }));
  EXPECT_EQ(step("v"), -1);
}

TEST_F(ProgressPollerTest, RecordsWhenStepWasFirstReceived) {
  ranks_.set_status(url(1), at_step(5));
  start();
  const SystemTime begin = std::chrono::system_clock::now();
  poller_->watch(kJob, "u", address(1), 9400);
  const auto received = [&] { return poller_->latest(kJob, "u").step_received_at; };
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
    ASSERT_TRUE(eventually([&] { return poller_->latest(kJob, "u").last_status->phase == phase; }));
  }
  EXPECT_GT(*received(), second);
}

// The status of the job may be written between two polls only.
TEST_F(ProgressPollerTest, KeepsTheHighestStepOfAnAttempt) {
  start();
  RankStatus status = at_step(200);
  status.checkpoint_step = 150;
  ranks_.set_status(url(1), status);
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return step() == 200; }));
  status.step = status.checkpoint_step = 100;
  ranks_.set_status(url(1), status);
  ASSERT_TRUE(eventually([&] { return step() == 100; }));
  EXPECT_EQ(poller_->latest(kJob, "u").highest, (api::HighestProgress{.step = 200, .checkpoint_step = 150}));
  status.attempt += 1;
  ranks_.set_status(url(1), status);
  ASSERT_TRUE(eventually([&] { return poller_->latest(kJob, "u").last_status->attempt == status.attempt; }));
  EXPECT_EQ(poller_->latest(kJob, "u").highest, (api::HighestProgress{.step = 100, .checkpoint_step = 100}));
}

TEST_F(ProgressPollerTest, BoundsAndSanitizesTexts) {
  RankStatus hostile = at_step(1);
  hostile.phase = "\x1b[31mtrain\n" + std::string(5000, 'x');
  hostile.updated_at = std::string(5000, '9');
  ranks_.set_status(url(1), hostile);
  start();
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return step() == 1; }));
  const RankStatus status = *poller_->latest(kJob, "u").last_status;
  EXPECT_TRUE(status.phase.starts_with(" [31mtrain x")) << status.phase;
  EXPECT_LE(status.phase.size(), 60u);
  EXPECT_LE(status.updated_at.size(), 40u);
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

TEST_F(ProgressPollerTest, FormatsIpv6AddressesAsUrls) {
  ranks_.set_status("http://[fd00::1]:9400", at_step(3));
  start();
  poller_->watch(kJob, "u", "fd00::1", 9400);
  EXPECT_TRUE(eventually([&] { return step() == 3; }));
}

// Also if the next poll of the job is not due for an hour.
TEST_F(ProgressPollerTest, SendsARequestForACheckpointImmediatelyAndRepeatsIt) {
  ranks_.set_status(url(1), at_step(1));
  start({.interval = 1h, .timeout = 1s, .max_interval = 1h, .rate = 1e6, .threads = 2, .slow_threads = 1});
  poller_->watch(kJob, "u", address(1), 9400);
  ASSERT_TRUE(eventually([&] { return ranks_.polls(url(1)) == 1; }));
  EXPECT_EQ(ranks_.request(url(1)), std::nullopt);
  ASSERT_TRUE(eventually([&] { return poller_->latest(kJob, "u").last_poll.has_value(); }));
  poller_->watch(kJob, "u", address(1), 9400, 7);
  ASSERT_TRUE(eventually([&] { return ranks_.request(url(1)) == 7; }));
  poller_->watch(kJob, "u", address(1), 9400, 7);  // as each reconcile does
  EXPECT_EQ(ranks_.polls(url(1)), 2);
  ranks_.set_status(url(2), at_step(1));
  poller_->watch(kJob, "u", address(2), 9400, 7);  // rank 0 has another address
  EXPECT_TRUE(eventually([&] { return ranks_.request(url(2)) == 7; }));
}

}  // namespace
}  // namespace oarlock::control
