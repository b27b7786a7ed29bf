// Which device a rank trains on, and how it is set up. The CUDA half is another file (device_cuda.cc), chosen by
// OARLOCK_CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/error.h"
#include "trainer/config/config.h"
#include "trainer/device/choose_device.h"

namespace oarlock {

struct SelectedDevice {
  c10::Device device = c10::kCPU;
  std::string warning;  // for the log; empty: nothing to say
};
// By the rules of choose_device(), which it fails as. Makes the device current.
Result<SelectedDevice> select_device(const DeviceRequest& request, const LocalPlace& place);

// Of this process. The build's and the machine's part of select_device(). Throws c10::Error where a device or its
// driver has failed, unlike on a machine that has none.
CudaDevices cuda_devices();
void make_current(int cuda_index);

// Puts the section "cuda" into effect for this process; before the model is built, on the thread that trains. With
// graphs the thread's current stream is a side stream from here on: a step is captured on the stream on which the
// gradient hooks were made. kConfig: what was asked for needs a CUDA device.
Result<void> configure_device(const CudaConfig& config, c10::Device device);

struct DeviceMemory {
  int64_t allocated_bytes = 0;  // by tensors
  int64_t reserved_bytes = 0;   // by LibTorch's allocator, what it keeps for later included
  int64_t peak_bytes = 0;       // highest allocated_bytes since the start of the process
  int64_t limit_bytes = 0;      // that this process may take: cuda.memory_fraction of the device's
  int64_t retries = 0;          // allocations that worked only when cached memory was given back
  int64_t out_of_memory = 0;    // allocations that failed
};
// Nothing on the CPU. Cheap: asks LibTorch's allocator, not the device.
std::optional<DeviceMemory> device_memory(c10::Device device);

// As CUDA names it; empty on the CPU.
std::string device_name(c10::Device device);

struct DeviceVersions {
  std::string cuda;  // empty: built without
  std::string nccl;
};
DeviceVersions device_versions();

}  // namespace oarlock
