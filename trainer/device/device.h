// Which device a rank trains on, and how it is set up. The CUDA half is another file (device_cuda.cc), chosen by
// OARLOCK_CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "common/error.h"
#include "trainer/config/config.h"

namespace oarlock {

// One device per local rank. Auto takes CUDA where the build and the machine have it. kUnavailable: CUDA was asked for
// and is not there, or has fewer devices than the node has ranks. Makes the device current.
Result<c10::Device> select_device(DeviceKind kind, int local_rank, int local_world_size);

// Puts the section "cuda" into effect for this process; before the model is built, on the thread that trains. With
// graphs the thread's current stream is a side stream from here on: a step is captured on the stream on which the
// gradient hooks were made. kConfig: what was asked for needs a CUDA device.
Result<void> configure_device(const CudaConfig& config, c10::Device device);

struct DeviceMemory {
  int64_t allocated_bytes = 0;  // by tensors
  int64_t reserved_bytes = 0;   // by LibTorch's allocator, what it keeps for later included
  int64_t peak_bytes = 0;       // highest allocated_bytes since the start of the process
};
// Nothing on the CPU. Cheap: asks LibTorch's allocator, not the device.
std::optional<DeviceMemory> device_memory(c10::Device device);

struct DeviceVersions {
  std::string cuda;  // empty: built without
  std::string nccl;
};
DeviceVersions device_versions();

}  // namespace oarlock
