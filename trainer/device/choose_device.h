// The rules by which a rank gets its device. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/config.h"

namespace oarlock {

struct DeviceRequest {
  DeviceKind kind = DeviceKind::kAuto;
  std::vector<int64_t> gpu_ids{};  // by local rank, among the visible devices; empty: local rank n takes device n
  Fallback fallback = Fallback::kNone;
};

// This rank on its node.
struct LocalPlace {
  int rank = 0;
  int world_size = 1;
  bool has_own_devices = false;  // the launcher shows each rank only its own devices: srun --gpus-per-task
};

// What the build and the machine have.
struct CudaDevices {
  bool in_build = false;
  int visible = 0;  // after CUDA_VISIBLE_DEVICES
};

struct DeviceChoice {
  std::optional<int> cuda;  // index among the visible devices; nothing: the CPU
  std::string warning;      // what was asked for and is not so; empty: nothing to say
};

// Local rank n takes device n; where fewer are visible than the node has ranks, and each rank sees its own, device 0.
// Auto takes CUDA where build and machine have it, else the CPU. Where CUDA was asked for, or is there with fewer
// devices than the node has ranks, that is kUnavailable, or with Fallback::kCpu the CPU and a warning. kConfig: gpu_ids
// does not fit the ranks.
Result<DeviceChoice> choose_device(const DeviceRequest& request, const LocalPlace& place, const CudaDevices& devices);

}  // namespace oarlock
