// In place of device_cuda.cc in a build without OARLOCK_CUDA.
#include "trainer/device/device.h"
#include "trainer/device/patience.h"
#include "trainer/device/settings.h"

namespace oarlock {

CudaDevices cuda_devices() { return {}; }

void make_current(int) {}

Result<void> configure_device(const CudaConfig& config, c10::Device) {
  if (config.graphs) {
    return fail(ExitCode::kConfig,
                "cuda.graphs is not in this build; remove it, or use a build with -DOARLOCK_CUDA=ON");
  }
  apply_global_settings(config);
  return {};
}

void wait_for_device(c10::Device, Patience) {}

std::optional<DeviceMemory> device_memory(c10::Device) { return std::nullopt; }

std::string device_name(c10::Device) { return ""; }

DeviceVersions device_versions() { return {}; }

}  // namespace oarlock
