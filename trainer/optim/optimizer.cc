#include "trainer/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "trainer/optim/adam.h"
#include "trainer/optim/sgd.h"

namespace oarlock {

Optimizer::Optimizer(std::vector<ParameterGroup> groups, std::vector<std::string> state_names)
    : groups_(std::move(groups)), state_names_(std::move(state_names)) {
  for (const ParameterGroup& group : groups_) {
    Lists lists;
    for (const NamedTensor& parameter : group.parameters) lists.parameters.push_back(parameter.tensor);
    const at::Tensor& first = lists.parameters.front();
    Rate rate{group.lr, {}};
    if (first.is_cuda())
      rate.on_device = at::full({}, group.lr, first.options().dtype(at::kFloat).requires_grad(false));
    rates_.push_back(std::move(rate));
    gradients_.emplace_back().reserve(lists.parameters.size());
    lists_.push_back(std::move(lists));
  }
}

std::vector<at::Tensor> Optimizer::zeros_like(const ParameterGroup& group) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& parameter : group.parameters) out.push_back(at::zeros_like(parameter.tensor.detach()));
  return out;
}

void Optimizer::set_learning_rates(const std::function<double(double lr)>& rate_of) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const double value = rate_of(groups_[i].lr);
    if (value == rates_[i].value) continue;
    rates_[i].value = value;
    if (rates_[i].on_device.defined()) rates_[i].on_device.fill_(value);
  }
}

const GradientLists& Optimizer::gather_gradients() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    gradients_[i].clear();
    for (const at::Tensor& parameter : lists_[i].parameters) {
      if (const at::Tensor& gradient = parameter.grad(); gradient.defined()) gradients_[i].push_back(gradient);
    }
  }
  return gradients_;
}

void Optimizer::step(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < groups_.size(); ++i) {
    Lists& all = lists_[i];
    if (gradients_[i].empty()) continue;
    if (gradients_[i].size() == all.parameters.size()) {
      update(i, all, gradients_[i], true, found_inf);
      continue;
    }
    Lists used;
    used.states.resize(all.states.size());
    for (size_t j = 0; j < all.parameters.size(); ++j) {
      if (!all.parameters[j].grad().defined()) continue;
      used.parameters.push_back(all.parameters[j]);
      for (size_t k = 0; k < all.states.size(); ++k) used.states[k].push_back(all.states[k][j]);
    }
    update(i, used, gradients_[i], false, found_inf);
  }
}

TensorMap Optimizer::tensors() const {
  TensorMap out;
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (size_t k = 0; k < lists_[i].states.size(); ++k) {
      for (size_t j = 0; j < groups_[i].parameters.size(); ++j) {
        out[groups_[i].parameters[j].name + "." + state_names_[k]] = lists_[i].states[k][j];
      }
    }
  }
  return out;
}

Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerConfig& config,
                                                  const std::vector<NamedTensor>& parameters) {
  Result<std::vector<ParameterGroup>> groups = group_parameters(config, parameters);
  if (!groups) return tl::make_unexpected(groups.error());
  if (config.kind == OptimizerKind::kSgd) return std::make_unique<Sgd>(config, std::move(*groups));
  return std::make_unique<Adam>(config, std::move(*groups));
}

}  // namespace oarlock
