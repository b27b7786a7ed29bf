// A watchdog thread that ends the process after failures that the training thread cannot detect because it is blocked,
// and the conditions that it checks: failed NCCL collectives, and a connection attempt that does not end.
//
// With NCCL the host enqueues collectives and then waits for the device, without a limit if another rank does not
// arrive. LibTorch's own watchdog detects this after the group's timeout and sets the group's error state, which is
// polled here; it does not end the process (disable_nccl_watchdog_exit()). With Gloo the waiting call itself throws.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "common/error.h"

namespace oarlock {

class Watchdog {
 public:
  // Called on the watchdog thread. An error ends the process.
  using Check = std::function<std::optional<Error>()>;

  // Calls `check` once per `interval` until destroyed. An error is thrown as an ErrorException (common/error.h) on the
  // watchdog thread, where nothing catches it; the terminate handler (process/termination.h) reports it and exits.
  explicit Watchdog(Check check, std::chrono::milliseconds interval = std::chrono::milliseconds(100));

 private:
  std::jthread thread_;
};

// State of a process group's communicator.
enum class GroupState {
  kHealthy,
  kTimedOut,  // a collective exceeded the group's timeout
  kBroken     // the connection to another rank is lost
};

// The error that `state` means for this rank, or nullopt if the group is healthy. `device_error` is the error of this
// rank's own GPU, or empty; it takes precedence over a lost connection. Pure.
std::optional<Error> collective_error(GroupState state, std::chrono::milliseconds timeout,
                                      const std::string& device_error = "");

// Returns a check that polls the group's state with `probe`. `device_error` is called only if the group is broken, and
// may be empty.
Watchdog::Check collective_check(std::function<GroupState()> probe, std::chrono::milliseconds timeout,
                                 std::function<std::string()> device_error = {});

// The error with which to abandon connecting the ranks, or nullopt to continue. Neither NCCL nor Gloo returns from
// connecting on a signal, and NCCL does not return when a rank is lost meanwhile. `signal` is the termination signal
// that the process received, or 0. Pure.
std::optional<Error> connect_error(std::chrono::milliseconds elapsed, std::chrono::milliseconds timeout, int signal);

}  // namespace oarlock
