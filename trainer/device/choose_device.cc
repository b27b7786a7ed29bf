#include "trainer/device/choose_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace oarlock {
namespace {

int index_for(const DeviceRequest& request, const LocalPlace& place, const CudaDevices& devices) {
  if (!request.gpu_ids.empty()) return static_cast<int>(request.gpu_ids[static_cast<size_t>(place.rank)]);
  return place.has_own_devices && devices.visible < place.world_size ? 0 : place.rank;
}

// What stands against CUDA; nothing where nothing does.
std::optional<std::string> obstacle(const DeviceRequest& request, const LocalPlace& place, int index,
                                    const CudaDevices& devices) {
  if (!devices.in_build) return "device: cuda is not in this build; use device: cpu, or a build with -DOARLOCK_CUDA=ON";
  if (devices.visible == 0) {
    return "device: cuda, but this machine shows no CUDA device; check the driver and CUDA_VISIBLE_DEVICES, or use "
           "device: cpu";
  }
  if (index < devices.visible) return std::nullopt;
  if (!request.gpu_ids.empty()) {
    return fmt::format(
        "gpu_ids: [{}] gives local rank {} the device {}, but {} are visible, numbered from 0 (after "
        "CUDA_VISIBLE_DEVICES); correct gpu_ids",
        fmt::join(request.gpu_ids, ", "), place.rank, index, devices.visible);
  }
  return fmt::format(
      "local rank {} of {} has no CUDA device: {} visible; start at most {} ranks on this node, or use "
      "device: cpu",
      place.rank, place.world_size, devices.visible, devices.visible);
}

}  // namespace

Result<DeviceChoice> choose_device(const DeviceRequest& request, const LocalPlace& place, const CudaDevices& devices) {
  if (request.kind == DeviceKind::kCpu) return DeviceChoice{};
  if (!request.gpu_ids.empty() && request.gpu_ids.size() < static_cast<size_t>(place.world_size)) {
    return fail(ExitCode::kConfig,
                fmt::format("gpu_ids: [{}] are {} devices for {} ranks on this node; give each rank its own, or start "
                            "fewer ranks",
                            fmt::join(request.gpu_ids, ", "), request.gpu_ids.size(), place.world_size));
  }
  const bool listed = !request.gpu_ids.empty();
  const bool asked = request.kind == DeviceKind::kCuda || listed;
  if (!asked && devices.visible == 0) {
    return DeviceChoice{std::nullopt, devices.in_build ? "no CUDA device is visible: training on the CPU" : ""};
  }
  const int index = index_for(request, place, devices);
  const std::optional<std::string> problem = obstacle(request, place, index, devices);
  if (!problem) return DeviceChoice{index, ""};
  if (request.fallback == Fallback::kNone) return fail(ExitCode::kUnavailable, *problem);
  return DeviceChoice{std::nullopt, fmt::format("{}; distributed.fallback: cpu: training on the CPU", *problem)};
}

}  // namespace oarlock
