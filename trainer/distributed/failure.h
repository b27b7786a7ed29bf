// Exceptions become values here: the one place that knows what LibTorch and Gloo throw.
#pragma once

#include <exception>
#include <string>

#include "common/error.h"
#include "common/failure.h"
#include "trainer/distributed/fault_text.h"

namespace oarlock {

// LibTorch's log lines and backtraces no longer go to stderr, unless $TORCH_CPP_LOG_LEVEL asks for them: whatever fails
// in it reaches us as an exception, and is told once. For the whole process.
void silence_libtorch_log();

// What a library says, without its backtrace.
std::string first_line(const std::string& text);

// kPeerLost: a collective did not end in time, or another rank is gone. `detail` is what the backend says.
Error late_peer(const std::string& detail);
Error lost_peer(const std::string& detail);

// The Error for an error text of CUDA, NCCL, Gloo or the TCPStore, by classify_fault() (fault_text.h).
Error to_error(const std::string& text, FaultOrigin origin);

// kPeerLost for what a collective throws when another rank is gone or late; kDeviceFailed (common/device_failed.h) for
// faults of this rank's device that a restart may cure; kOsErr where memory is exhausted; kUnavailable where driver,
// build and device do not match; kSoftware for all else. The message is one line.
Error to_error(const std::exception_ptr& exception);

// Calls body() and turns what it throws into an Error.
template <typename Body>
auto catch_errors(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return tl::make_unexpected(to_error(std::current_exception()));
  }
}

}  // namespace oarlock
