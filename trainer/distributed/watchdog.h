// Ends the process when a condition holds that the training thread cannot see, as it waits for something.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "common/error.h"

namespace oarlock {

class Watchdog {
 public:
  // Called on the watchdog's own thread; an error ends the process.
  using Check = std::function<std::optional<Error>()>;

  // Checks from now on until destroyed. An error is thrown as a Failure (failure.h) on the watchdog's thread, where
  // nothing catches it: the handler of exit_on_terminate() reports it and ends the process.
  explicit Watchdog(Check check, std::chrono::milliseconds interval = std::chrono::milliseconds(100));

 private:
  std::jthread thread_;  // stops with the watchdog
};

}  // namespace oarlock
