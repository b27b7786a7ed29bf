#include "ddp/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>

#include <stdexcept>
#include <vector>

namespace oarlock {

GradScaler::GradScaler(at::Device device, const GradScalerOptions& options)
    : options_(options),
      scale_(at::full({}, options.init_scale, at::TensorOptions(device).dtype(at::kFloat))),
      growth_tracker_(at::full({}, 0, at::TensorOptions(device).dtype(at::kInt))) {}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (found_inf_.contains(&optimizer))
    throw std::logic_error("GradScaler: unscale_() was already called for this optimizer since the last update()");
  std::vector<at::Tensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  at::Tensor found = at::zeros_like(scale_);
  unscale(gradients_of(parameters), found);
  found_inf_[&optimizer] = found;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!found_inf_.contains(&optimizer)) unscale_(optimizer);
  if (found_inf_[&optimizer].item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  at::Tensor any = at::zeros_like(scale_);
  for (const auto& [optimizer, found] : found_inf_) any = at::maximum(any, found);
  update(any);
  found_inf_.clear();
}

void GradScaler::unscale(const GradientLists& gradients, at::Tensor& found_inf) const {
  // The reciprocal in double: that of a large float32 may be subnormal.
  check_finite_and_scale(gradients, found_inf, scale_.to(at::kDouble).reciprocal().to(at::kFloat));
}

void GradScaler::update(const at::Tensor& found_inf) {
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
}

void check_finite_and_scale(const GradientLists& gradients, at::Tensor& found_inf, const at::Tensor& factor) {
  const at::NoGradGuard no_grad;
  for (const std::vector<at::Tensor>& list : gradients) {
    if (!list.empty()) at::_amp_foreach_non_finite_check_and_unscale_(list, found_inf, factor);
  }
}

}  // namespace oarlock
