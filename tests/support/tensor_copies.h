// Snapshots of tensors, for tests.
#pragma once

#include <ATen/core/Tensor.h>

#include "ddp/safetensors.h"

namespace oarlock::test {

// Returns copies on the CPU that share no memory with the originals.
inline TensorMap copies_of(const TensorMap& tensors) {
  TensorMap copies;
  for (const auto& [name, tensor] : tensors) copies.emplace(name, tensor.detach().cpu().clone());
  return copies;
}

}  // namespace oarlock::test
