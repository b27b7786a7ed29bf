#include "operator/shell/progress_poller.h"

#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <thread>

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using kube::ObjectKey;

const ObjectKey kJob{"ns", "j"};

// All ranks of the world: what each address answers, and how often it was asked.
class Ranks {
 public:
  void say(const std::string& url, std::optional<RankStatus> status) {
    const std::lock_guard lock(mutex_);
    said_[url] = std::move(status);
  }
  int asked(const std::string& url) const {
    const std::lock_guard lock(mutex_);
    const auto it = asked_.find(url);
    return it == asked_.end() ? 0 : it->second;
  }
  int most_at_once() const { return most_; }
  void hang(bool value) { hang_ = value; }

  ProgressPoller::Connect connect() {
    return [this](const std::string& url) { return std::make_shared<Rank>(*this, url); };
  }

 private:
  class Rank final : public kube::Transport {
   public:
    Rank(Ranks& ranks, std::string url) : ranks_(ranks), url_(std::move(url)) {}
    kube::TransportResult<kube::Response> send(const kube::Request&, kube::Milliseconds, std::stop_token) override {
      std::abort();
    }
    kube::TransportResult<kube::Response> stream(const kube::Request& request, kube::ByteSink& sink, kube::StreamLimits,
                                                 std::stop_token cancel) override {
      EXPECT_TRUE(request.target == "/statusz?uid=u" || request.target == "/statusz?uid=v") << request.target;
      const int now = ++ranks_.at_once_;
      int most = ranks_.most_;
      while (most < now && !ranks_.most_.compare_exchange_weak(most, now)) {
      }
      while (ranks_.hang_ && !cancel.stop_requested()) std::this_thread::yield();
      --ranks_.at_once_;
      const std::lock_guard lock(ranks_.mutex_);
      ++ranks_.asked_[url_];
      const std::optional<RankStatus> said = ranks_.said_[url_];
      if (!said) return tl::make_unexpected(kube::TransportError{kube::TransportError::Kind::kConnect, "nobody"});
      if (!sink.write(to_json(*said)))
        return tl::make_unexpected(kube::TransportError{kube::TransportError::Kind::kRefused, ""});
      return kube::Response{.status = 200, .body = "", .retry_after = {}};
    }

   private:
    Ranks& ranks_;
    const std::string url_;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::optional<RankStatus>> said_;
  std::map<std::string, int> asked_;
  std::atomic<int> at_once_ = 0;
  std::atomic<int> most_ = 0;
  std::atomic<bool> hang_ = false;
};

RankStatus at_step(int64_t step) {
  RankStatus status;
  status.step = step;
  return status;
}

template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class ProgressPollerTest : public ::testing::Test {
 protected:
  void start(ProgressOptions options = {
                 .interval = 2ms, .timeout = 1s, .longest_interval = 20ms, .rate = 1e6, .threads = 2}) {
    poller_ = std::make_unique<ProgressPoller>(
        options, ranks_.connect(), [this](const ObjectKey&) { ++news_; }, std::make_shared<RealClock>());
    poller_->start();
  }
  int64_t step(const std::string& uid = "u") const {
    const Heard heard = poller_->latest(kJob, uid);
    return heard.said ? heard.said->step : -1;
  }
  Ranks ranks_;
  std::atomic<int> news_ = 0;
  std::unique_ptr<ProgressPoller> poller_;
};

TEST_F(ProgressPollerTest, AsksAgainAndAgainAndTellsOnlyNews) {
  ranks_.say("http://10.0.0.1:9400", at_step(5));
  start();
  EXPECT_EQ(step(), -1);
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  EXPECT_TRUE(eventually([&] { return ranks_.asked("http://10.0.0.1:9400") >= 5; }));
  EXPECT_EQ(step(), 5);
  EXPECT_EQ(news_, 1);
  ranks_.say("http://10.0.0.1:9400", at_step(6));
  EXPECT_TRUE(eventually([&] { return step() == 6; }));
  EXPECT_TRUE(eventually([&] { return news_ == 2; }));
}

TEST_F(ProgressPollerTest, WhatWasSaidStaysWhileNobodyAnswersAndThroughAPause) {
  ranks_.say("http://10.0.0.1:9400", at_step(5));
  start();
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  ASSERT_TRUE(eventually([&] { return step() == 5; }));
  ranks_.say("http://10.0.0.1:9400", std::nullopt);
  const int before = ranks_.asked("http://10.0.0.1:9400");
  EXPECT_TRUE(eventually([&] { return ranks_.asked("http://10.0.0.1:9400") > before + 2; }));
  EXPECT_EQ(step(), 5);
  poller_->pause(kJob);
  EXPECT_EQ(poller_->watched(), 0u);
  EXPECT_EQ(step(), 5);
}

TEST_F(ProgressPollerTest, TellsWhenItAskedLastAndWhetherItWasAnswered) {
  ranks_.say("http://10.0.0.1:9400", at_step(5));
  start();
  const auto asked = [&] { return poller_->latest(kJob, "u").asked; };
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  const SystemTime begin = std::chrono::system_clock::now();
  EXPECT_TRUE(eventually([&] { return asked() && asked()->at >= begin && asked()->answered; }));
  ranks_.say("http://10.0.0.1:9400", std::nullopt);
  EXPECT_TRUE(eventually([&] { return !asked()->answered; }));
  const SystemTime silent = std::chrono::system_clock::now();
  EXPECT_TRUE(eventually([&] { return asked()->at >= silent; })) << "it is asked again and again";
  poller_->stop();
  poller_->watch(kJob, "u", "10.0.0.2", 9400);
  EXPECT_FALSE(asked()) << "the other address was not asked yet";
  EXPECT_EQ(step(), 5);
}

TEST_F(ProgressPollerTest, AnotherAddressIsAskedInsteadAndAnotherUidStartsAnew) {
  ranks_.say("http://10.0.0.1:9400", at_step(5));
  ranks_.say("http://10.0.0.2:9400", at_step(1));
  start();
  poller_->watch(kJob, "u", "10.0.0.1", 9400);
  ASSERT_TRUE(eventually([&] { return step() == 5; }));
  poller_->watch(kJob, "u", "10.0.0.2", 9400);
  EXPECT_TRUE(eventually([&] { return step() == 1; }));
  ranks_.say("http://10.0.0.2:9400", std::nullopt);
  poller_->watch(kJob, "v", "10.0.0.2", 9400);
  EXPECT_EQ(step("v"), -1);
  EXPECT_EQ(step("u"), -1);
  poller_->forget(kJob);
  EXPECT_EQ(poller_->watched(), 0u);
}

TEST_F(ProgressPollerTest, ARankThatHangsTakesOneThreadAndTheEndDoesNotWaitForIt) {
  start();
  ranks_.hang(true);
  for (int i = 0; i < 10; ++i) poller_->watch({"ns", std::to_string(i)}, "u", "10.0.0." + std::to_string(i), 9400);
  EXPECT_TRUE(eventually([&] { return ranks_.most_at_once() == 2; }));
  poller_->stop();
  EXPECT_EQ(ranks_.most_at_once(), 2);
}

TEST_F(ProgressPollerTest, ManyJobsShareTheRate) {
  // 50 jobs at 20 questions a second: each is asked every 2.5 s, so in the first moment each is asked once.
  start({.interval = 1ms, .timeout = 1s, .longest_interval = 1s, .rate = 20, .threads = 2});
  for (int i = 0; i < 50; ++i) {
    ranks_.say("http://10.0.0." + std::to_string(i) + ":9400", at_step(1));
    poller_->watch({"ns", std::to_string(i)}, "u", "10.0.0." + std::to_string(i), 9400);
  }
  EXPECT_TRUE(eventually([&] { return news_ == 50; }));
  // The first few were added while there were few; the last ten know them all.
  for (int i = 40; i < 50; ++i) EXPECT_EQ(ranks_.asked("http://10.0.0." + std::to_string(i) + ":9400"), 1) << i;
}

TEST_F(ProgressPollerTest, IPv6AddressesAreWrittenAsUrls) {
  ranks_.say("http://[fd00::1]:9400", at_step(3));
  start();
  poller_->watch(kJob, "u", "fd00::1", 9400);
  EXPECT_TRUE(eventually([&] { return step() == 3; }));
}

}  // namespace
}  // namespace oarlock::control
