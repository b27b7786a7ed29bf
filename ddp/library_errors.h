// Converts exceptions and error texts of LibTorch, CUDA, NCCL, Gloo and the TCPStore to values of type Error. No other
// file depends on the exceptions or texts of these libraries.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// ---- exceptions ----

// Converts a caught exception to an Error with a message of one line. kPeerLost if a collective failed because another
// rank exited or did not arrive; kDeviceFailed for a fault of this rank's device that a restart may clear; kOsErr if
// memory is exhausted; kUnavailable if driver, build and device do not match; otherwise kSoftware. An ErrorException
// keeps its own Error.
Error to_error(const std::exception_ptr& exception);

// Calls body(), which returns a Result, and converts anything it throws with to_error().
template <typename Body>
auto catch_errors(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return tl::make_unexpected(to_error(std::current_exception()));
  }
}

// Keeps LibTorch's log lines and backtraces off stderr unless TORCH_CPP_LOG_LEVEL is set: every failure reaches the
// process as an exception and is logged once. Affects the whole process.
void silence_libtorch_log();

// ---- error texts ----

// The library function that reported an error. Ambiguous words count only in errors of collectives.
enum class FaultOrigin { kLibrary, kCollective };

// Converts an error text by its classification.
Error to_error(const std::string& text, FaultOrigin origin);

// kPeerLost: a collective timed out, or the connection to another rank was lost. `detail` is the backend's own text.
Error peer_timeout_error(const std::string& detail);
Error peer_lost_error(const std::string& detail);

enum class FaultKind {
  kUnknown,       // the text matches none of the kinds below
  kDevice,        // the GPU, its link or its driver failed; a retry may succeed
  kDeviceMemory,  // the GPU's memory is exhausted
  kDeviceSetup,   // image and node do not match: the driver is too old, or the build has no code for the GPU
  kKernel,        // a kernel accessed invalid memory: a bug, or an index out of range in the data
  kPeer,          // another rank has exited, or the network to it is broken
  kLatePeer,      // another rank did not arrive in time
  kNcclUsage,     // NCCL rejects the arrangement of the ranks, such as two on one GPU
  kSharedMemory,  // /dev/shm is too small for NCCL
  kHostMemory,    // the host's memory is exhausted
};

// Classifies an error text. Errors that may be hardware or software, such as "unspecified launch failure", are kDevice:
// only errors that are certain to repeat end a job. A collective's error is kPeer unless its text shows another cause.
// Pure.
FaultKind classify_fault(std::string_view text, FaultOrigin origin);

// The first line of an error text, followed by NCCL's last error if the text contains one. Pure.
std::string fault_detail(std::string_view text);

}  // namespace oarlock
