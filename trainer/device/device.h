// Which device a rank trains on. The CUDA half is another file (device_cuda.cc), chosen by OARLOCK_CUDA.
#pragma once

#include <c10/core/Device.h>

#include "common/error.h"
#include "trainer/config/config.h"

namespace oarlock {

// One device per local rank. Auto takes CUDA where the build and the machine have it. kUnavailable: CUDA was asked for
// and is not there, or has fewer devices than the node has ranks. Makes the device current.
Result<c10::Device> select_device(DeviceKind kind, int local_rank, int local_world_size);

struct DeviceVersions {
  std::string cuda;  // empty: built without
  std::string nccl;
};
DeviceVersions device_versions();

}  // namespace oarlock
