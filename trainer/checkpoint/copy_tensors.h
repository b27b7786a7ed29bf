// What a checkpoint held, into the live tensors.
#pragma once

#include <string>

#include "common/error.h"
#include "trainer/checkpoint/safetensors.h"

namespace oarlock {

// Copies the values of `from` into the tensors of `to` when names, shapes and types are the same; else copies nothing
// and fails with kDataErr, naming the tensor. `what` is the kind of tensor for the message.
Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& what);

}  // namespace oarlock
