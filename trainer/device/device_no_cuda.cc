// In place of device_cuda.cc in a build without OARLOCK_CUDA.
#include "trainer/device/device.h"

namespace oarlock {

Result<c10::Device> select_device(DeviceKind kind, int, int) {
  if (kind == DeviceKind::kCuda) {
    return fail(ExitCode::kUnavailable,
                "device: cuda is not in this build; use device: cpu, or a build with -DOARLOCK_CUDA=ON");
  }
  return c10::Device(c10::kCPU);
}

DeviceVersions device_versions() { return {}; }

}  // namespace oarlock
