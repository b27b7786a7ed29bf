#include "trainer/device/device.h"

namespace oarlock {

Result<SelectedDevice> select_device(const DeviceRequest& request, const LocalPlace& place) {
  const CudaDevices devices = request.kind == DeviceKind::kCpu ? CudaDevices{} : cuda_devices();
  const Result<DeviceChoice> choice = choose_device(request, place, devices);
  if (!choice) return tl::make_unexpected(choice.error());
  if (!choice->cuda) return SelectedDevice{c10::kCPU, choice->warning};
  make_current(*choice->cuda);
  return SelectedDevice{c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*choice->cuda)), choice->warning};
}

}  // namespace oarlock
