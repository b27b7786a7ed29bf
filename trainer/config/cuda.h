// The section "cuda": how the device is used. What speaks of layout and determinism holds on the CPU too.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct CudaConfig {
  bool graphs = false;
  bool channels_last = false;
  bool tf32 = false;
  double memory_fraction = 1;
  bool cudnn_benchmark = false;
  bool deterministic = false;
};

void describe(CudaConfig& config, Fields& fields);

}  // namespace oarlock
