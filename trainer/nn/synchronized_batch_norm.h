// Batch normalisation over the batches of all ranks: torch/nn/modules/_functions.py, SyncBatchNorm.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "trainer/nn/batch_exchange.h"

namespace oarlock {

// Updated in place by `factor` (0 leaves them): running = (1 - factor) * running + factor * batch's, with the unbiased
// variance. Both undefined: not kept. The batch stands for `repeats` copies of itself (BatchNorm::forward_repeated()).
struct RunningStatistics {
  at::Tensor mean;
  at::Tensor var;
  double factor = 0;
  int64_t repeats = 1;
};

// Training mode. Input [n, c, ...], n may be 0 on some ranks; weight and bias [c] or undefined. All ranks call it, and
// all go backward through it. The gradients of weight and bias are this rank's part, as DDP wants them. Not twice
// differentiable. Throws c10::Error, on all ranks, where the ranks together have less than two values per channel.
at::Tensor synchronized_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                   const RunningStatistics& running, double eps,
                                   const std::shared_ptr<const BatchExchange>& exchange);

}  // namespace oarlock
