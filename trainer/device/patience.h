// Waiting for a device that may never be done: a replayed CUDA graph whose collective waits for a lost rank is
// invisible to NCCL's watchdog.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <optional>

namespace oarlock {

using Patience = std::optional<std::chrono::milliseconds>;  // absent: forever

// Polls until is_done(). Throws c10::DistBackendError when that takes longer than the patience.
void poll_with_patience(const std::function<bool()>& is_done, Patience patience);

// Waits until the device has done what was put on its current stream, polling as above. The CPU is always done.
void wait_for_device(c10::Device device, Patience patience);

}  // namespace oarlock
