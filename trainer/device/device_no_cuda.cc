// In place of device_cuda.cc in a build without OARLOCK_CUDA.
#include "trainer/device/device.h"
#include "trainer/device/settings.h"

namespace oarlock {

Result<c10::Device> select_device(DeviceKind kind, int, int) {
  if (kind == DeviceKind::kCuda) {
    return fail(ExitCode::kUnavailable,
                "device: cuda is not in this build; use device: cpu, or a build with -DOARLOCK_CUDA=ON");
  }
  return c10::Device(c10::kCPU);
}

Result<void> configure_device(const CudaConfig& config, c10::Device) {
  if (config.graphs) {
    return fail(ExitCode::kConfig,
                "cuda.graphs is not in this build; remove it, or use a build with -DOARLOCK_CUDA=ON");
  }
  apply_global_settings(config);
  return {};
}

std::optional<DeviceMemory> device_memory(c10::Device) { return std::nullopt; }

DeviceVersions device_versions() { return {}; }

}  // namespace oarlock
