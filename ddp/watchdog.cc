#include "ddp/watchdog.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/error.h"
#include "ddp/library_errors.h"

namespace oarlock {
namespace {

double to_seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Watchdog::Watchdog(Check check, std::chrono::milliseconds interval)
    : thread_([check = std::move(check), interval](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any stopped;
        std::unique_lock lock(mutex);
        while (!stop.stop_requested()) {
          if (const std::optional<Error> error = check()) throw ErrorException(*error);
          stopped.wait_for(lock, stop, interval, [] { return false; });
        }
      }) {}

std::optional<Error> collective_error(GroupState state, std::chrono::milliseconds timeout,
                                      const std::string& device_error) {
  switch (state) {
    case GroupState::kHealthy:
      return std::nullopt;
    case GroupState::kTimedOut:
      return peer_timeout_error(fmt::format("not finished after {} s", to_seconds(timeout)));
    case GroupState::kBroken:
      if (!device_error.empty()) return to_error("CUDA error: " + device_error, FaultOrigin::kCollective);
      return peer_lost_error("the connection broke");
  }
  return std::nullopt;
}

Watchdog::Check collective_check(std::function<GroupState()> probe, std::chrono::milliseconds timeout,
                                 std::function<std::string()> device_error) {
  return [probe = std::move(probe), timeout, device_error = std::move(device_error)] {
    const GroupState state = probe();
    return collective_error(state, timeout, state == GroupState::kBroken && device_error ? device_error() : "");
  };
}

std::optional<Error> connect_error(std::chrono::milliseconds elapsed, std::chrono::milliseconds timeout, int signal) {
  if (signal != 0) {
    return Error{ExitCode::kTempFail, fmt::format("interrupted by signal {} while the ranks were connecting", signal)};
  }
  if (elapsed <= timeout) return std::nullopt;
  return Error{ExitCode::kPeerLost,
               fmt::format("the ranks did not connect within {} s: another rank was lost or cannot be reached; see the "
                           "other ranks' last messages, or raise the timeout of the rendezvous",
                           to_seconds(timeout))};
}

}  // namespace oarlock
