// Undoes what a forward pass has written to the buffers of a module.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace oarlock {

// Restores the model's buffers, such as the running statistics of BatchNorm, after a step that was skipped or
// did not complete. A forward pass writes to them before that is known.
class BufferRollback {
 public:
  // The buffers must remain the same tensors.
  explicit BufferRollback(std::vector<at::Tensor> buffers) : buffers_(std::move(buffers)) {}

  // Copies the buffers. Called before the first forward pass of a step.
  void begin();

  // Called after the step. `skipped` is a float32 scalar on the buffers' device; if it is not 0, the values that the
  // buffers had in begin() are restored. Does not wait for a CUDA device.
  void end(const at::Tensor& skipped);

  // Restores the values that the buffers had in the last begin().
  void restore();

 private:
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> copies_;
};

}  // namespace oarlock
