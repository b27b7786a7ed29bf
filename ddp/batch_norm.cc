#include "ddp/batch_norm.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_backward_elemt.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_elemt.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts.h>
#include <ATen/ops/batch_norm_stats.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace oarlock {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The statistics of the batches of all ranks together.
struct Statistics {
  at::Tensor mean;    // [c]
  at::Tensor spread;  // [c]; variance for the CPU kernels, 1 / sqrt(variance + eps) for the CUDA kernels
  at::Tensor counts;  // values per channel; CPU: the sum over the ranks; CUDA: int32 [ranks]
};

struct Gradients {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
};

// The sums that are reduced over the ranks in backward, [c] each: dy, and dy * (x - mean) times a factor of the kernel.
struct LocalSums {
  at::Tensor dy;
  at::Tensor dy_x;
};

at::ScalarType statistics_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor with_one_layout(const at::Tensor& input) {
  const bool channels_last =
      input.is_contiguous(at::MemoryFormat::ChannelsLast) || input.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  return channels_last ? input : input.contiguous();
}

// Throws if all ranks together have fewer than two values per channel. If this rank has two values, it does not read
// the counts of the others, which would synchronize with the device. Otherwise all ranks throw together.
void check_values(int64_t own, const at::Tensor& counts) {
  if (own > 1) return;
  const auto all = counts.sum().item<double>();
  TORCH_CHECK_VALUE(all > 1,
                    "synchronized batch norm: expected more than 1 value per channel when training, the batches of all "
                    "ranks together have ",
                    all);
}

void update(const at::Tensor& running, const at::Tensor& value, double factor) {
  running.mul_(1 - factor).add_(value.to(running.scalar_type()), factor);
}

// ---- CPU: there are no kernels for synchronized batch norm. The evaluation kernels compute the same if the statistics
// of all ranks are passed as running statistics ----
namespace cpu {

// y = (x - mean) * weight / sqrt(variance + eps) + bias
at::Tensor normalize(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const Statistics& joined,
                     double eps) {
  return std::get<0>(at::native_batch_norm(x, weight, bias, joined.mean, joined.spread, /*training=*/false, 0, eps));
}

// The parallel algorithm of Chan, Golub and LeVeque (1979), in double.
Statistics join(const at::Tensor& x, const RunningStatistics& running, const BatchNormCollectives& collectives) {
  const int64_t channels = x.size(1);
  const auto wide = x.options().dtype(at::kDouble);
  at::Tensor own = at::zeros({2 * channels + 1}, wide);
  if (x.numel() > 0) {
    const auto [mean, var] = at::batch_norm_update_stats(x, {}, {}, 0);
    own = at::cat({mean.to(at::kDouble), var.to(at::kDouble), at::full({1}, x.numel() / channels, wide)});
  }
  const at::Tensor all = collectives.all_gather(own);  // [ranks, 2c + 1]
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor count = counts.sum();
  check_values(x.numel() / channels, counts);
  const at::Tensor mean = (counts * means).sum(0) / count;
  const at::Tensor var = (counts * (all.narrow(1, channels, channels) + (means - mean).square())).sum(0) / count;
  if (running.mean.defined()) {
    update(running.mean, mean, running.factor);
    const at::Tensor values = count * running.repeats;
    update(running.var, var * (values / (values - 1)), running.factor);
  }
  return {mean.to(x.scalar_type()), var.to(x.scalar_type()), count};
}

// The evaluation kernel returns dy * weight / sqrt(variance + eps), and sums of dy * (x - mean) / sqrt(...) and of dy.
Gradients backward_fixed_statistics(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                    const Statistics& joined, double eps) {
  auto [input, by_weight, by_bias] = at::native_batch_norm_backward(dy, x, weight, joined.mean, joined.spread, {}, {},
                                                                    /*train=*/false, eps, {true, true, true});
  return {std::move(input), std::move(by_weight), std::move(by_bias)};
}

// dx = weight / sqrt(variance + eps) * (dy - mean(dy) - x_hat * mean(dy * x_hat)): the last two terms are a
// normalization with another weight and bias. It is applied to x - mean, because its sum with dy nearly cancels in
// small batches.
at::Tensor add_statistics_gradient(const at::Tensor& fixed, const at::Tensor& x, const at::Tensor& weight,
                                   const Statistics& joined, const LocalSums& sums, double eps) {
  const at::Tensor scale = -weight * (joined.spread.to(at::kDouble) + eps).rsqrt() / joined.counts;
  const at::Tensor by_x = (scale * sums.dy_x).to(x.scalar_type());
  const at::Tensor constant = (scale * sums.dy).to(x.scalar_type());
  std::vector<int64_t> per_channel(static_cast<size_t>(x.dim()), 1);
  per_channel[1] = -1;
  const Statistics centred = {at::zeros_like(joined.mean), joined.spread, joined.counts};
  return fixed + normalize(x - joined.mean.view(per_channel), by_x, constant, centred, eps);
}

}  // namespace cpu

// ---- CUDA: the kernels of LibTorch in the order of _functions.py. Tested only with a GPU ----
namespace cuda {

Statistics join(const at::Tensor& x, const RunningStatistics& running, double eps,
                const BatchNormCollectives& collectives) {
  const int64_t channels = x.size(1);
  const auto options = x.options().dtype(statistics_type(x));
  // An empty batch has an arbitrary finite deviation with weight 0.
  at::Tensor own = at::cat({at::zeros({channels}, options), at::ones({channels}, options), at::zeros({1}, options)});
  if (x.numel() > 0) {
    const auto [mean, inverse] = at::batch_norm_stats(x, eps);
    own = at::cat({mean, inverse, at::full({1}, x.numel() / channels, mean.options())});
  }
  at::Tensor all = collectives.all_gather(own);
  check_values(x.numel() / channels, all.select(1, 2 * channels));
  // The kernel divides by the cumulative count, so ranks without samples must come last. Unlike the mask in
  // _functions.py, sorting does not synchronize with the device and can be captured in a CUDA graph.
  all = all.index_select(0, all.select(1, 2 * channels).argsort(/*dim=*/0, /*descending=*/true));
  const at::Tensor counts = all.select(1, 2 * channels).contiguous();
  // For repeats, see BatchNorm::normalize_repeated().
  const bool repeated = running.repeats > 1 && running.mean.defined();
  const at::Tensor own_mean = repeated ? at::zeros_like(running.mean) : running.mean;
  const at::Tensor own_var = repeated ? at::zeros_like(running.var) : running.var;
  const auto [mean, inverse] = at::batch_norm_gather_stats_with_counts(
      x, all.narrow(1, 0, channels).contiguous(), all.narrow(1, channels, channels).contiguous(), own_mean, own_var,
      repeated ? 1.0 : running.factor, eps, counts);
  if (repeated) {
    const at::Tensor count = counts.sum();
    const at::Tensor values = count * running.repeats;
    update(running.mean, own_mean, running.factor);
    update(running.var, own_var * ((count - 1) / count * (values / (values - 1))), running.factor);
  }
  return {mean, inverse, counts.to(at::kInt)};
}

}  // namespace cuda

// Stores the collectives in an IValue of the autograd context.
struct CollectivesHolder final : torch::CustomClassHolder {
  explicit CollectivesHolder(std::shared_ptr<const BatchNormCollectives> of) : collectives(std::move(of)) {}
  std::shared_ptr<const BatchNormCollectives> collectives;
};

class SyncBatchNormFunction : public torch::autograd::Function<SyncBatchNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const RunningStatistics& running, double eps,
                            const std::shared_ptr<const BatchNormCollectives>& collectives) {
    const bool on_cpu = input.device().is_cpu();
    // The CPU computes in the dtype of the statistics.
    const at::Tensor x = with_one_layout(on_cpu ? input.to(statistics_type(input)) : input);
    const Statistics joined = on_cpu ? cpu::join(x, running, *collectives) : cuda::join(x, running, eps, *collectives);
    context->save_for_backward({x, weight, joined.mean, joined.spread, joined.counts});
    context->saved_data["eps"] = eps;
    context->saved_data["type"] = static_cast<int64_t>(input.scalar_type());
    context->saved_data["collectives"] = c10::IValue::make_capsule(c10::make_intrusive<CollectivesHolder>(collectives));
    if (x.numel() == 0) return at::empty_like(input);
    if (on_cpu) return cpu::normalize(x, weight, bias, joined, eps).to(input.scalar_type());
    return at::batch_norm_elemt(x, weight, bias, joined.mean, joined.spread, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const Statistics joined = {saved[2], saved[3], saved[4]};
    const double eps = context->saved_data["eps"].toDouble();
    const auto holder =
        c10::static_intrusive_pointer_cast<CollectivesHolder>(context->saved_data["collectives"].toCapsule());
    const bool needs_input = context->needs_input_grad(0);
    Gradients gradients = x.numel() == 0
                              ? backward_without_samples(x, weight, joined, needs_input, *holder->collectives)
                          : x.is_cpu() ? on_cpu(outputs[0], x, weight, joined, eps, needs_input, *holder->collectives)
                                       : on_cuda(outputs[0], x, weight, joined, needs_input, *holder->collectives);
    if (gradients.input.defined()) {
      gradients.input = gradients.input.to(static_cast<at::ScalarType>(context->saved_data["type"].toInt()));
    }
    return {gradients.input, gradients.weight, gradients.bias, {}, {}, {}};
  }

 private:
  static LocalSums summed(const at::Tensor& dy, const at::Tensor& dy_x, const BatchNormCollectives& collectives) {
    at::Tensor both = at::cat({dy, dy_x});
    collectives.all_reduce(both);
    return {both.narrow(0, 0, dy.size(0)), both.narrow(0, dy.size(0), dy.size(0))};
  }

  // A rank without samples contributes 0 to the sums, for which the other ranks wait. Its gradients are zeros rather
  // than undefined, so that DDP considers its parameters used.
  static Gradients backward_without_samples(const at::Tensor& x, const at::Tensor& weight, const Statistics& joined,
                                            bool needs_input, const BatchNormCollectives& collectives) {
    const at::Tensor zero = at::zeros_like(joined.mean);
    if (needs_input) summed(zero, zero, collectives);
    return {needs_input ? at::zeros_like(x) : at::Tensor(), at::zeros_like(weight), at::zeros_like(weight)};
  }

  static Gradients on_cpu(const at::Tensor& output, const at::Tensor& x, const at::Tensor& weight,
                          const Statistics& joined, double eps, bool needs_input,
                          const BatchNormCollectives& collectives) {
    const at::Tensor dy = output.to(x.scalar_type()).contiguous(x.suggest_memory_format());
    Gradients out = cpu::backward_fixed_statistics(dy, x, weight, joined, eps);
    if (!needs_input) return {{}, out.weight, out.bias};
    const LocalSums sums = summed(out.bias, out.weight, collectives);
    out.input = cpu::add_statistics_gradient(out.input, x, weight, joined, sums, eps);
    return out;
  }

  static Gradients on_cuda(const at::Tensor& output, const at::Tensor& x, const at::Tensor& weight,
                           const Statistics& joined, bool needs_input, const BatchNormCollectives& collectives) {
    const at::Tensor dy = output.contiguous(x.suggest_memory_format());
    const auto [sum_dy, sum_dy_x, by_weight, by_bias] =
        at::batch_norm_backward_reduce(dy, x, joined.mean, joined.spread, weight, needs_input, true, true);
    if (!needs_input) return {{}, by_weight, by_bias};
    const LocalSums sums = summed(sum_dy, sum_dy_x, collectives);
    const at::Tensor wide = weight.to(joined.mean.scalar_type());
    return {at::batch_norm_backward_elemt(dy, x, joined.mean, joined.spread, wide, sums.dy, sums.dy_x, joined.counts),
            by_weight, by_bias};
  }
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const RunningStatistics& running, double eps,
                           const std::shared_ptr<const BatchNormCollectives>& collectives) {
  if (weight.defined()) return SyncBatchNormFunction::apply(input, weight, bias, running, eps, collectives);
  const auto options = input.options().dtype(statistics_type(input));
  return SyncBatchNormFunction::apply(input, at::ones({input.size(1)}, options), at::zeros({input.size(1)}, options),
                                      running, eps, collectives);
}

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
  const int64_t values_per_feature = input.numel() / features_;
  const auto values = static_cast<double>(values_per_feature);
  const double all = values * static_cast<double>(repeats);
  const double correction = (values - 1) / values * (all / (all - 1));
  const double factor = average_factor();
  running_mean.mul_(1 - factor).add_(mean, factor);
  running_var.mul_(1 - factor).add_(var, factor * correction);
  return out;
}

}  // namespace oarlock
