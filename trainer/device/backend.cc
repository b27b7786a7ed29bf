#include "trainer/device/backend.h"

namespace oarlock {

Result<BackendChoice> choose_backend(const DistributedConfig& config, bool cuda_device, bool nccl_in_build) {
  if (config.backend == BackendKind::kGloo) return BackendChoice{};
  if (cuda_device && nccl_in_build) return BackendChoice{true, ""};
  if (config.backend == BackendKind::kAuto) return BackendChoice{};
  const std::string problem = nccl_in_build
                                  ? "distributed.backend: nccl needs device: cuda; use gloo on the cpu"
                                  : "distributed.backend: nccl is not in this build; use gloo, or a build with "
                                    "-DOARLOCK_CUDA=ON";
  if (config.fallback == Fallback::kCpu) {
    return BackendChoice{false, problem + "; distributed.fallback: cpu: using gloo"};
  }
  return fail(nccl_in_build ? ExitCode::kConfig : ExitCode::kUnavailable, problem);
}

}  // namespace oarlock
