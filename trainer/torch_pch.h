// The LibTorch headers that most of the trainer includes, precompiled (cmake: oarlock_torch_headers).
#pragma once

#include <torch/nn.h>
#include <torch/types.h>
