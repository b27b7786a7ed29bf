// Batch normalization over the batches of all ranks, after SyncBatchNorm in torch/nn/modules/_functions.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace oarlock {

// The collectives that synchronized batch normalization needs. trainer/distributed implements them on a process group.
// All ranks must call them in the same order. They throw the exceptions of the backend.
class BatchNormCollectives {
 public:
  virtual ~BatchNormCollectives() = default;

  // Gathers `own` [n] of every rank and returns [ranks, n] in the order of the ranks.
  virtual at::Tensor all_gather(const at::Tensor& own) const = 0;

  // Replaces `values` by their sum over the ranks.
  virtual void all_reduce(at::Tensor& values) const = 0;
};

// Running statistics, which are updated in place: running = (1 - factor) * running + factor * statistics of the batch,
// with the unbiased variance. A factor of 0 leaves them unchanged. `mean` and `var` are both undefined in a module that
// does not track them. The batch stands for `repeats` copies of itself; see BatchNorm::forward_repeated().
struct RunningStatistics {
  at::Tensor mean;
  at::Tensor var;
  double factor = 0;
  int64_t repeats = 1;
};

// Normalizes `input` [n, c, ...] in training mode. n may be 0 on some ranks. `weight` and `bias` are [c] or undefined.
// All ranks must call it, and all must run backward through it. The gradients of weight and bias are the contribution
// of this rank, which DDP averages. Double backward is not supported. Throws c10::Error on all ranks if all ranks
// together have fewer than two values per channel.
at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const RunningStatistics& running, double eps,
                           const std::shared_ptr<const BatchNormCollectives>& collectives);

}  // namespace oarlock
