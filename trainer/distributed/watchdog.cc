#include "trainer/distributed/watchdog.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/failure.h"

namespace oarlock {

Watchdog::Watchdog(Check check, std::chrono::milliseconds interval)
    : thread_([check = std::move(check), interval](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any woken;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          if (const std::optional<Error> error = check()) throw Failure(*error);
          woken.wait_for(lock, stop, interval, [] { return false; });
        }
      }) {}

}  // namespace oarlock
