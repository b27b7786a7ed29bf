// The part of the section "cuda" that is LibTorch's own switches, alike with CUDA and without.
#pragma once

#include "trainer/config/cuda.h"

namespace oarlock {

void apply_global_settings(const CudaConfig& config);

}  // namespace oarlock
