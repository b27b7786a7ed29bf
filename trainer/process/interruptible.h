// Calls into code that blocks and knows nothing of the stop flag: name resolution, a peer that never answers.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "trainer/process/signals.h"

namespace oarlock {

// Runs `body` on a thread of its own and returns what it returns, or throws what it throws. Returns nullopt if `stop`
// is raised and `body` has not returned `grace` later, or if it has not returned within `limit`. Its thread is then
// abandoned: it stays blocked until the process ends, so `body` must own everything that it uses, or use what lives as
// long as the process.
template <typename T>
std::optional<T> run_interruptibly(std::function<T()> body, const StopFlag& stop, std::chrono::milliseconds grace,
                                   std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kLook{50};
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
  std::chrono::milliseconds stopping{0};
  while (result.wait_for(kLook) != std::future_status::ready) {
    waited += kLook;
    if (stop.raised()) stopping += kLook;
    if (stopping <= grace && waited <= limit) continue;
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return result.get();
}

}  // namespace oarlock
