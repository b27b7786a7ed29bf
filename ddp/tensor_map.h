// Tensors by name, as a safetensors file has them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "common/error.h"

namespace oarlock {

using TensorMap = std::map<std::string, at::Tensor>;

// Succeeds if copy_tensors() can copy `from` into `to`: names, shapes and dtypes are equal. Otherwise returns kDataErr
// with one line that names `source`, where `from` was read, the first tensor that differs, and the shapes and dtypes of
// both sides.
Result<void> check_tensors(const TensorMap& from, const TensorMap& to, const std::string& source);

// Copies the values of `from` into the tensors of `to`, which may be on other devices and may be leaves that require
// gradients. Fails as check_tensors(), and then copies nothing.
Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& source);

// Returns a dtype and a shape for messages: "Float [64, 3]". Pure.
std::string shape_text(const at::Tensor& tensor);

}  // namespace oarlock
