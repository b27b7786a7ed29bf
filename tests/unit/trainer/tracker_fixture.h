// A server of a remote sink that the test controls, and trackers that deliver to it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/status_macros.h"
#include "tests/support/tracking_events.h"
#include "trainer/tracking/tracker.h"

namespace oarlock::test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

inline constexpr auto kPatience = 120s;
inline constexpr auto kClaimInterval = 20ms;

// A server that the test controls.
class FakeServer {
 public:
  enum class Answer { kOk, kFails, kRejects, kHangs };

  Result<size_t> receive(std::span<const Event> events) {
    std::unique_lock lock(mutex_);
    calls_ += 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answer_ != Answer::kHangs || is_cancelled_; });
    if (is_cancelled_) return fail(ExitCode::kUnavailable, "cancelled");
    if (answer_ == Answer::kFails) return fail(ExitCode::kUnavailable, "connection refused");
    if (answer_ == Answer::kRejects && events.front().step == 2) return fail(ExitCode::kDataErr, "rejected");
    steps_.push_back(events.front().step);  // one event per call
    if (const auto* text = std::get_if<Text>(&events.front().content)) text_ = text->text;
    changed_.notify_all();
    return size_t{1};
  }
  void set(Answer answer) {
    const std::lock_guard lock(mutex_);
    answer_ = answer;
    changed_.notify_all();
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  bool wait_for_steps(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return steps_.size() >= count; });
  }
  bool wait_for_calls(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return calls_ >= count; });
  }
  std::vector<int64_t> steps() {
    const std::lock_guard lock(mutex_);
    return steps_;
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Answer answer_ = Answer::kOk;
  bool is_cancelled_ = false;
  int calls_ = 0;
  std::vector<int64_t> steps_;
  std::string text_;  // the last one
};

class FakeSink : public Sink {
 public:
  explicit FakeSink(std::shared_ptr<FakeServer> server) : server_(std::move(server)) {}
  std::string_view name() const override { return "fake"; }
  bool is_remote() const override { return true; }
  Result<size_t> write(std::span<const Event> events) override { return server_->receive(events); }
  void cancel() override { server_->cancel(); }

 protected:
  std::shared_ptr<FakeServer> server_;
};

template <typename SinkType = FakeSink>
std::unique_ptr<Tracker> make_tracker(const fs::path& directory, const std::shared_ptr<FakeServer>& server,
                                      std::chrono::milliseconds claim_interval = kClaimInterval,
                                      const Logger& logger = Logger::silent()) {
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<SinkType>(server));
  return std::make_unique<Tracker>(
      TrackerOptions{.directory = directory, .first_retry = 5ms, .max_retry = 50ms, .claim_interval = claim_interval},
      std::move(sinks), logger);
}

inline std::unique_ptr<Tracker> make_logging_tracker(const fs::path& directory,
                                                     const std::shared_ptr<FakeServer>& server) {
  return make_tracker(directory, server, kClaimInterval, Logger(LogFormat::kText, LogLevel::kInfo));
}

}  // namespace oarlock::test
