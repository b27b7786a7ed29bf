// The choice of the backend of the process group.
#pragma once

#include <string>

#include "common/error.h"
#include "trainer/config/distributed.h"

namespace oarlock {

struct BackendChoice {
  bool nccl = false;    // otherwise Gloo
  std::string warning;  // set if the configured backend was replaced
};

// Selects NCCL for CUDA devices if the build includes it, otherwise Gloo. If the configuration requires NCCL and it is
// not available, fails with kConfig or kUnavailable, or with Fallback::kCpu selects Gloo with a warning. Pure.
Result<BackendChoice> choose_backend(const DistributedConfig& config, bool cuda_device, bool nccl_in_build);

}  // namespace oarlock
