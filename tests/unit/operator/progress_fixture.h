// A poller of progress, and the ranks that it polls.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "operator/shell/progress.h"

namespace oarlock::control {

inline const kube::ObjectKey kPolledJob{"ns", "j"};

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

inline RankStatus at_step(int64_t step) {
  RankStatus status;
  status.step = step;
  return status;
}

inline std::string address(int i) { return "10.0.0." + std::to_string(i); }
inline std::string url(int i) { return "http://" + address(i) + ":9400"; }

template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class ProgressPollerTest : public ::testing::Test {
 protected:
  static ProgressOptions frequent_polls() {
    using namespace std::chrono_literals;
    return {.interval = 2ms, .timeout = 1s, .max_interval = 20ms, .rate = 1e6, .threads = 2, .slow_threads = 1};
  }
  void start(const ProgressOptions& options = frequent_polls()) {
    poller_ = std::make_unique<ProgressPoller>(
        options, ranks_.connect(), [this](const kube::ObjectKey&) { ++news_; }, std::make_shared<RealClock>());
    poller_->start();
  }
  int64_t step(const std::string& uid = "u") const {
    const RankProbe probe = poller_->latest(kPolledJob, uid);
    return probe.last_status ? probe.last_status->step : -1;
  }
  Ranks ranks_;
  std::atomic<int> news_ = 0;
  std::unique_ptr<ProgressPoller> poller_;
};

}  // namespace oarlock::control
