// Classification of error texts of CUDA, NCCL, Gloo and the TCPStore. Pure and LibTorch-free.
#pragma once

#include <string>
#include <string_view>

namespace oarlock {

enum class FaultKind {
  kUnknown,       // the text matches none of the kinds below
  kDevice,        // the GPU, its link or its driver failed; a retry may succeed
  kDeviceMemory,  // the GPU's memory is exhausted
  kDeviceSetup,   // image and node do not match: the driver is too old, or the build has no code for the GPU
  kKernel,        // a kernel accessed what it must not: a bug, or an index out of range in the data
  kPeer,          // another rank has ended, or the network to it is broken
  kLatePeer,      // another rank did not arrive in time
  kNcclUsage,     // NCCL rejects the arrangement of the ranks, such as two on one GPU
  kSharedMemory,  // /dev/shm is too small for NCCL
  kHostMemory,    // the host's memory is exhausted
};

// The thrower of an error. Vague words count only in errors of collectives.
enum class FaultOrigin { kLibrary, kCollective };

// Errors that may be either hardware or software, such as "unspecified launch failure", are kDevice: only errors that a
// retry is certain to repeat end a job. A collective's error is kPeer unless its text shows another cause.
FaultKind classify_fault(std::string_view text, FaultOrigin origin);

// The first line of an error text, followed by NCCL's own last error where the text has one.
std::string fault_detail(std::string_view text);

}  // namespace oarlock
