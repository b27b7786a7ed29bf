#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include "trainer/device/device.h"

namespace oarlock {

Result<c10::Device> select_device(DeviceKind kind, int local_rank, int local_world_size) {
  if (kind == DeviceKind::kCpu) return c10::Device(c10::kCPU);
  const int count = c10::cuda::device_count();
  if (count == 0) {
    if (kind == DeviceKind::kAuto) return c10::Device(c10::kCPU);
    return fail(ExitCode::kUnavailable,
                "device: cuda, but this machine shows no CUDA device; check the driver and CUDA_VISIBLE_DEVICES, or "
                "use device: cpu");
  }
  if (local_rank >= count) {
    return fail(ExitCode::kUnavailable, fmt::format("local rank {} of {} has no CUDA device: {} visible; start at most "
                                                    "{} ranks on this node, or use device: cpu",
                                                    local_rank, local_world_size, count, count));
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(local_rank));
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
}

DeviceVersions device_versions() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  return {fmt::format("{}.{}", runtime / 1000, runtime % 1000 / 10),
          fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)};
}

}  // namespace oarlock
