// Batch normalisation with the names, defaults and numbers of torch.nn.BatchNorm1d, 2d and 3d. Unlike LibTorch's own,
// it can compute its statistics over the batches of all ranks (`ddp.sync_batch_norm: true`), so models should use
// these.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/nn/batch_exchange.h"

namespace oarlock {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // of the running statistics; nothing: their plain mean over all batches
  bool affine = true;
  bool track_running_stats = true;
};

class BatchNorm : public torch::nn::Module {
 public:
  // Input [n, features, ...], of the input's type; statistics are float at least. Throws c10::Error for another number
  // of dimensions, and in training where a channel has a single value.
  at::Tensor forward(const at::Tensor& input) { return forward_repeated(input, 1); }

  // As forward() of the input repeated so many times along dimension 0, but without the copies: gives the output of one
  // of them. Only the unbiased variance that the running statistics take depends on the number of values.
  at::Tensor forward_repeated(const at::Tensor& input, int64_t repeats);

  void reset_parameters();

  // From now on training uses the statistics of all ranks' batches, an empty one included; evaluation stays local.
  void synchronize(std::shared_ptr<const BatchExchange> exchange) { exchange_ = std::move(exchange); }
  bool synchronized() const { return exchange_ != nullptr; }

  // [features]; undefined without affine.
  at::Tensor weight;
  at::Tensor bias;
  // [features], and a scalar int64; undefined without track_running_stats.
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
  std::shared_ptr<const BatchExchange> exchange_;  // null: this rank's batch alone
};

// [n, c] or [n, c, length].
class BatchNorm1dImpl final : public BatchNorm {
 public:
  explicit BatchNorm1dImpl(int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm1d", features, options, 2, 3) {}
};
TORCH_MODULE(BatchNorm1d);

// [n, c, height, width], in either memory format.
class BatchNorm2dImpl final : public BatchNorm {
 public:
  explicit BatchNorm2dImpl(int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm2d", features, options, 4, 4) {}
};
TORCH_MODULE(BatchNorm2d);

// [n, c, depth, height, width].
class BatchNorm3dImpl final : public BatchNorm {
 public:
  explicit BatchNorm3dImpl(int64_t features, const BatchNormOptions& options = {})
      : BatchNorm("BatchNorm3d", features, options, 5, 5) {}
};
TORCH_MODULE(BatchNorm3d);

}  // namespace oarlock
