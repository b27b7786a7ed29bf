// An API server inside the test's process.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http/client/transport.h"

namespace oarlock::test {

// Watches show what the test pushes; all other requests are answered by a function.
class FakeApi final : public http::Transport {
 public:
  using Handler = std::function<http::Response(const http::Request&)>;

  void push(const std::string& plural, const std::string& type, const nlohmann::json& object) {
    const std::lock_guard lock(mutex_);
    lines_[plural].push_back(nlohmann::json{{"type", type}, {"object", object}}.dump() + "\n");
    changed_.notify_all();
  }
  void on_request(Handler handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds,
                                             std::stop_token) override {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request.method + " " + request.target);
    return handler_(request);
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink, http::StreamLimits,
                                               std::stop_token cancel) override {
    const std::string plural = request.target.find("/trainingjobs") != std::string::npos ? "trainingjobs"
                               : request.target.find("/pods") != std::string::npos       ? "pods"
                                                                                         : "services";
    std::unique_lock lock(mutex_);
    for (;;) {
      std::deque<std::string>& lines = lines_[plural];
      if (!changed_.wait(lock, cancel, [&] { return !lines.empty(); })) break;
      const std::string line = std::move(lines.front());
      lines.pop_front();
      lock.unlock();
      const bool goes_on = sink.write(line);
      lock.lock();
      if (!goes_on) break;
    }
    return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kCancelled, "cancelled"});
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::deque<std::string>> lines_;
  std::vector<std::string> requests_;
  Handler handler_;
};

}  // namespace oarlock::test
