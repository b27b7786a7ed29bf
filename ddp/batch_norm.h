// Batch normalization with the parameter names, defaults and results of torch.nn.BatchNorm1d, 2d and 3d. Unlike the
// modules of LibTorch, these can compute their statistics over the batches of all ranks (convert_sync_batchnorm()),
// so models should use them.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace oarlock {

// ---- Synchronized ----------------------------------------------------------------------------------------------
// Batch normalization over the batches of all ranks, after SyncBatchNorm in torch/nn/modules/_functions.py.

// The collectives that synchronized batch normalization needs. convert_sync_batchnorm() implements them on a process
// group. All ranks must call them in the same order. They throw the exceptions of the backend.
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

// ---- Modules ---------------------------------------------------------------------------------------------------

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // of the running statistics; empty: cumulative average
  bool affine = true;
  bool track_running_stats = true;
};

class BatchNorm : public torch::nn::Module {
 public:
  // Normalizes `input` [n, features, ...]. The result has the dtype of the input; statistics are at least float32.
  // Throws c10::Error if the number of dimensions is wrong, or if a channel has only one value in training mode.
  at::Tensor forward(const at::Tensor& input) { return forward_repeated(input, 1); }

  // Equivalent to forward() of the input repeated `repeats` times along dimension 0, without the copies; returns the
  // output of one repetition. Only the unbiased variance in the running statistics depends on the number of values.
  at::Tensor forward_repeated(const at::Tensor& input, int64_t repeats);

  void reset_parameters();

  // Uses the statistics of the batches of all ranks in training mode from now on; batches may be empty. Evaluation mode
  // remains local.
  void synchronize(std::shared_ptr<const BatchNormCollectives> collectives) { collectives_ = std::move(collectives); }
  bool is_synchronized() const { return collectives_ != nullptr; }

  // [features]; undefined if not affine.
  at::Tensor weight;
  at::Tensor bias;
  // [features] and an int64 scalar; undefined without track_running_stats.
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;

 protected:
  BatchNorm(const char* name, int64_t features, const BatchNormOptions& options, int64_t fewest_dimensions,
            int64_t most_dimensions);

 private:
  double average_factor();
  at::Tensor normalize_repeated(const at::Tensor& input, int64_t repeats);

  BatchNormOptions options_;
  int64_t features_;
  int64_t fewest_dimensions_;
  int64_t most_dimensions_;
  std::shared_ptr<const BatchNormCollectives> collectives_;  // null: statistics of the local batch
};

// Input [n, c] or [n, c, length].
class BatchNorm1dImpl final : public BatchNorm {
 public:
  explicit BatchNorm1dImpl(int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", features, options, 2, 3) {}
};
TORCH_MODULE(BatchNorm1d);

// Input [n, c, height, width] in either memory format.
class BatchNorm2dImpl final : public BatchNorm {
 public:
  explicit BatchNorm2dImpl(int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", features, options, 4, 4) {}
};
TORCH_MODULE(BatchNorm2d);

// Input [n, c, depth, height, width].
class BatchNorm3dImpl final : public BatchNorm {
 public:
  explicit BatchNorm3dImpl(int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm3d", features, options, 5, 5) {}
};
TORCH_MODULE(BatchNorm3d);

}  // namespace oarlock
