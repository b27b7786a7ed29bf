#include "ddp/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace oarlock {
namespace {

// The values of a sparse gradient. Those of float16 are summed first, because their sum may overflow.
at::Tensor values_of(const at::Tensor& parameter) {
  if (parameter.grad().scalar_type() == at::kHalf) parameter.mutable_grad() = parameter.grad().coalesce();
  return parameter.grad()._values();
}

}  // namespace

GradScaler::GradScaler(at::Device device, const GradScalerOptions& options)
    : options_(options),
      scale_(at::full({}, options.init_scale, at::TensorOptions(device).dtype(at::kFloat))),
      growth_tracker_(at::full({}, 0, at::TensorOptions(device).dtype(at::kInt))) {}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (optimizers_.contains(&optimizer))
    throw std::logic_error("GradScaler: unscale_() was already called for this optimizer since the last update()");
  std::vector<at::Tensor> dense;
  GradientLists sparse;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined() && parameter.grad().is_sparse()) {
        sparse.push_back({values_of(parameter)});
      } else {
        dense.push_back(parameter);
      }
    }
  }
  at::Tensor found = at::zeros_like(scale_);
  unscale(gradients_of(dense), found);
  unscale(sparse, found);
  optimizers_[&optimizer] = {.found_inf = found};
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!optimizers_.contains(&optimizer)) unscale_(optimizer);
  OptimizerState& state = optimizers_[&optimizer];
  if (std::exchange(state.has_stepped, true))
    throw std::logic_error("GradScaler: step() was already called for this optimizer since the last update()");
  if (state.found_inf.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  if (optimizers_.empty()) throw std::logic_error("GradScaler: update() was called without a step() before it");
  at::Tensor any = at::zeros_like(scale_);
  for (const auto& [optimizer, state] : optimizers_) any = at::maximum(any, state.found_inf);
  update(any);
  optimizers_.clear();
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
