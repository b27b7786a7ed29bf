// The precompiled header of the trainer: the LibTorch headers that most files include (oarlock_torch_headers in
// trainer/CMakeLists.txt).
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>
