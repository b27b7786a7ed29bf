// A Transport that responds from a script, and a Sleeper that records its calls instead of sleeping.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "http/client/transport.h"
#include "kube/client/backoff.h"
#include "tests/support/fake_clock.h"

namespace oarlock::test {

// A response: the pieces of its body as they arrive, and how it ends.
struct Answer {
  int status = 200;
  std::vector<std::string> pieces{};
  std::optional<http::TransportErrorKind> failure{};  // after the pieces
  std::optional<std::chrono::seconds> retry_after{};
  std::chrono::milliseconds takes{2000};  // time of the fake clock that the response takes
};

class ScriptedTransport final : public http::Transport {
 public:
  explicit ScriptedTransport(std::shared_ptr<FakeClock> clock) : clock_(std::move(clock)) {}

  void script(Answer answer) { answers_.push_back(std::move(answer)); }
  // The response that is repeated when the script has ended.
  void when_empty(Answer answer) { repeated_ = std::move(answer); }
  // Called instead of responding when the script has ended; it should request a stop.
  void at_end(std::function<void()> stop) { at_end_ = std::move(stop); }
  const std::vector<http::Request>& requests() const { return requests_; }

  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds,
                                             std::stop_token) override {
    return answer(request, nullptr);
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink,
                                               http::StreamLimits limits, std::stop_token) override {
    last_limits = limits;
    return answer(request, &sink);
  }

  http::StreamLimits last_limits{};

 private:
  http::TransportResult<http::Response> answer(const http::Request& request, http::ByteSink* sink) {
    using Kind = http::TransportErrorKind;
    const std::lock_guard lock(mutex_);
    if (answers_.empty() && repeated_) answers_.push_back(*repeated_);
    if (answers_.empty()) {
      if (at_end_) at_end_();
      return tl::make_unexpected(http::TransportError{Kind::kCancelled, "the script has ended"});
    }
    requests_.push_back(request);
    const Answer now = std::move(answers_.front());
    answers_.pop_front();
    clock_->advance(now.takes);
    http::Response response{.status = now.status, .body = "", .retry_after = now.retry_after};
    for (const std::string& piece : now.pieces) {
      if (sink == nullptr || !response.ok()) {
        response.body += piece;
      } else if (!sink->write(piece)) {
        return tl::make_unexpected(http::TransportError{Kind::kRefused, "refused"});
      }
    }
    if (now.failure) return tl::make_unexpected(http::TransportError{*now.failure, "scripted failure"});
    return response;
  }

  const std::shared_ptr<FakeClock> clock_;
  std::mutex mutex_;
  std::deque<Answer> answers_;
  std::optional<Answer> repeated_;
  std::vector<http::Request> requests_;
  std::function<void()> at_end_;
};

class RecordingSleeper final : public kube::Sleeper {
 public:
  explicit RecordingSleeper(std::shared_ptr<FakeClock> clock) : clock_(std::move(clock)) {}
  bool sleep(std::chrono::milliseconds duration, const std::stop_token& stop) override {
    if (stop.stop_requested()) return false;
    slept.push_back(duration);
    clock_->advance(duration);
    return true;
  }
  std::vector<std::chrono::milliseconds> slept;

 private:
  const std::shared_ptr<FakeClock> clock_;
};

}  // namespace oarlock::test
