#include "trainer/nn/batch_norm.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "trainer/nn/sync_batch_norm.h"

namespace oarlock {

BatchNorm::BatchNorm(const char* name, int64_t features, const BatchNormOptions& options, int64_t fewest_dimensions,
                     int64_t most_dimensions)
    : torch::nn::Module(name),
      options_(options),
      features_(features),
      fewest_dimensions_(fewest_dimensions),
      most_dimensions_(most_dimensions) {
  if (options_.affine) {
    weight = register_parameter("weight", at::empty({features}));
    bias = register_parameter("bias", at::empty({features}));
  }
  if (options_.track_running_stats) {
    running_mean = register_buffer("running_mean", at::empty({features}));
    running_var = register_buffer("running_var", at::empty({features}));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
  reset_parameters();
}

void BatchNorm::reset_parameters() {
  const at::NoGradGuard no_grad;
  if (weight.defined()) {
    weight.fill_(1);
    bias.zero_();
  }
  if (running_mean.defined()) {
    running_mean.zero_();
    running_var.fill_(1);
    num_batches_tracked.zero_();
  }
}

// Increments num_batches_tracked and returns the weight of this batch in the running statistics. Without momentum it
// reads the counter, which synchronizes with a CUDA device.
double BatchNorm::average_factor() {
  if (!running_mean.defined()) return 0;
  num_batches_tracked.add_(1);
  return options_.momentum ? *options_.momentum : 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>());
}

at::Tensor BatchNorm::forward_repeated(const at::Tensor& input, int64_t repeats) {
  TORCH_CHECK_VALUE(input.dim() >= fewest_dimensions_ && input.dim() <= most_dimensions_, name(), ": expected ",
                    fewest_dimensions_, "D", most_dimensions_ > fewest_dimensions_ ? " or 3D" : "", " input (got ",
                    input.dim(), "D input)");
  TORCH_CHECK_VALUE(input.size(1) == features_, name(), ": expected ", features_, " features, the input has ",
                    input.size(1));
  if (!is_training()) {
    const bool use_batch_statistics = !running_mean.defined();
    return at::batch_norm(input, weight, bias, running_mean, running_var, use_batch_statistics, 0, options_.eps,
                          at::globalContext().userEnabledCuDNN());
  }
  if (collectives_) {
    return sync_batch_norm(input, weight, bias, {running_mean, running_var, average_factor(), repeats}, options_.eps,
                           collectives_);
  }
  TORCH_CHECK_VALUE(input.numel() / features_ > 1, name(),
                    ": expected more than 1 value per channel when training, got input of size ", input.sizes());
  if (repeats > 1 && running_mean.defined()) return normalize_repeated(input, repeats);
  return at::batch_norm(input, weight, bias, running_mean, running_var, true, average_factor(), options_.eps,
                        at::globalContext().userEnabledCuDNN());
}

// The kernel corrects the variance of n values by n / (n - 1), but n * repeats values need another factor. With a
// momentum of 1 the kernel returns the statistics of the batch, which are then averaged here.
at::Tensor BatchNorm::normalize_repeated(const at::Tensor& input, int64_t repeats) {
  const at::Tensor mean = at::zeros_like(running_mean);
  const at::Tensor var = at::zeros_like(running_var);
  at::Tensor out =
      at::batch_norm(input, weight, bias, mean, var, true, 1.0, options_.eps, at::globalContext().userEnabledCuDNN());
  const at::NoGradGuard no_grad;
  const auto values = static_cast<double>(input.numel() / features_);
  const double all = values * static_cast<double>(repeats);
  const double correction = (values - 1) / values * (all / (all - 1));
  const double factor = average_factor();
  running_mean.mul_(1 - factor).add_(mean, factor);
  running_var.mul_(1 - factor).add_(var, factor * correction);
  return out;
}

}  // namespace oarlock
