// Batches to the model's device.
#pragma once

#include "trainer/data/batch.h"

namespace oarlock {

inline Batch to_device(Batch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (auto& [name, tensor] : batch.tensors) tensor = tensor.to(device, /*non_blocking=*/true);
  return batch;
}

}  // namespace oarlock
