// The parameters and buffers of a module: the ones that duplicate other state, and their memory format.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "ddp/named_tensors.h"

namespace oarlock {

// A submodule that computes with constants which its Python counterpart keeps as buffers.
class ConstantBuffers {
 public:
  virtual ~ConstantBuffers() = default;
  // Returns them under the names of Python, relative to the submodule: "0.centers".
  virtual std::map<std::string, at::Tensor> constant_buffers() const = 0;
};

// The tensors of Python's state_dict that duplicate other state.
struct DerivedTensors {
  std::map<std::string, std::string> ties;      // further names of tied weights -> the first name
  std::map<std::string, at::Tensor> constants;  // of all ConstantBuffers
};
DerivedTensors derived_tensors(const torch::nn::Module& module);

// Converts every 4-dimensional parameter and buffer of a module to channels-last (NHWC) in place, the layout in which
// convolutions are fastest on tensor cores and in oneDNN. Names and values do not change. Call it before the Reducer is
// built, because its buckets take their strides from the parameters, and before an optimizer creates its state.
void to_channels_last(torch::nn::Module& module);

// Returns a 4-dimensional tensor in channels-last layout, and any other tensor unchanged. With a single channel the two
// layouts have the same bytes; only the strides of the result differ.
at::Tensor channels_last(const at::Tensor& tensor);

}  // namespace oarlock
