#include "trainer/distributed/collective_watch.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "trainer/distributed/failure.h"

namespace oarlock {

std::optional<Error> verdict(GroupState state, std::chrono::milliseconds timeout) {
  switch (state) {
    case GroupState::kWorks:
      return std::nullopt;
    case GroupState::kTimedOut:
      return late_peer(fmt::format("no end after {} s", std::chrono::duration<double>(timeout).count()));
    case GroupState::kBroken:
      return lost_peer("the connection broke");
  }
  return std::nullopt;
}

CollectiveWatch::CollectiveWatch(Look look, std::chrono::milliseconds timeout, std::chrono::milliseconds interval)
    : thread_([look = std::move(look), timeout, interval](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any woken;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          if (const std::optional<Error> error = verdict(look(), timeout)) throw Failure(*error);
          woken.wait_for(lock, stop, interval, [] { return false; });
        }
      }) {}

}  // namespace oarlock
