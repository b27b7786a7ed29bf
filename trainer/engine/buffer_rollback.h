// The model's buffers, such as the running statistics of BatchNorm, as they were before a step that is skipped. A
// forward pass writes to them before anybody knows whether its loss and gradients are finite.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace oarlock {

class BufferRollback {
 public:
  // The buffers must stay the same tensors.
  explicit BufferRollback(std::vector<at::Tensor> buffers) : buffers_(std::move(buffers)) {}

  // Before a step's first forward pass: copies the buffers.
  void begin();

  // After the step. `skipped` is a float32 scalar on the buffers' device; where it is not 0, the buffers become what
  // they were at begin(). Does not wait for a CUDA device.
  void end(const at::Tensor& skipped);

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> copies_;
};

}  // namespace oarlock
