// The precompiled header of the trainer: the LibTorch headers that most files include, and the header of code without
// LibTorch (oarlock_torch_headers in trainer/CMakeLists.txt).
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include "common/pch.h"
