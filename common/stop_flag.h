// A flag that stops an operation from another thread or a signal handler, and blocking calls that the flag interrupts.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace oarlock {

// A flag that SIGTERM and other signals raise, and that the training loop checks between steps. Thread-safe.
class StopFlag {
 public:
  // Async-signal-safe. Only the first call has an effect.
  void raise(int signal_number) {
    int none = 0;
    signal_.compare_exchange_strong(none, signal_number, std::memory_order_relaxed);
  }

  bool is_raised() const { return signal_number() != 0; }
  int signal_number() const { return signal_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> signal_{0};
};

// Runs `body` on a separate thread and returns its result, or throws its exception. Returns nullopt if `stop` is raised
// and `body` has not returned after `grace`, or if it has not returned after `limit`. The thread is then abandoned and
// may stay blocked until the process exits, so `body` must own everything that it uses, or use objects that exist as
// long as the process. For calls that do not check the flag, such as name resolution.
template <typename T>
std::optional<T> run_interruptibly(std::function<T()> body, const StopFlag& stop, std::chrono::milliseconds grace,
                                   std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kPollInterval{50};
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> result = promise->get_future();
  std::thread thread([promise, body = std::move(body)] {
    try {
      promise->set_value(body());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  });
  std::chrono::milliseconds waited{0};
  std::chrono::milliseconds waited_since_stop{0};
  while (result.wait_for(kPollInterval) != std::future_status::ready) {
    waited += kPollInterval;
    if (stop.is_raised()) waited_since_stop += kPollInterval;
    if (waited_since_stop <= grace && waited <= limit) continue;
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return result.get();
}

}  // namespace oarlock
