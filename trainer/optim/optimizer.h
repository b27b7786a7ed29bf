// AdamW and SGD on LibTorch's fused kernels; the arithmetic is that of torch.optim.AdamW and torch.optim.SGD.
#pragma once

#include <memory>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/optimizer.h"
#include "trainer/nn/named_tensors.h"

namespace oarlock {

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update of the parameters that have a gradient.
  virtual void step(double learning_rate) = 0;

  // "<parameter>.<state>" -> the live tensor: exp_avg, exp_avg_sq and step (a float32 scalar) of AdamW, momentum_buffer
  // of SGD with momentum. The set is the same at every step.
  virtual TensorMap state() const = 0;

  // Copies into the live state. kDataErr, naming the tensor, when one is missing, unknown or of another shape.
  Result<void> load(const TensorMap& state);
};

// Copies the values of `from` into the tensors of `to` when names, shapes and types are the same; else copies nothing
// and fails with kDataErr, naming the tensor. `what` is the kind of tensor for the message.
Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& what);

// Of the parameters that are trainable.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const std::vector<NamedTensor>& parameters);

}  // namespace oarlock
