#include "trainer/optim/adam.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>

namespace oarlock {
namespace {

std::vector<std::string> state_names(bool amsgrad) {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq", "step"};
  if (amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

}  // namespace

Adam::Adam(const OptimizerConfig& config, std::vector<ParameterGroup> groups)
    : Optimizer(std::move(groups), state_names(config.amsgrad)), config_(config) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const at::Tensor& first = lists_[i].parameters.front();
    const auto size = static_cast<int64_t>(lists_[i].parameters.size());
    const at::Tensor counts = at::zeros({size}, first.options().dtype(at::kFloat).requires_grad(false));
    std::vector<at::Tensor> steps;
    for (int64_t j = 0; j < size; ++j) steps.push_back(counts.select(0, j));
    counts_.push_back(counts);
    lists_[i].states = {zeros_like(groups_[i]), zeros_like(groups_[i]), std::move(steps)};
    if (config_.amsgrad) lists_[i].states.push_back(zeros_like(groups_[i]));
  }
}

void Adam::update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool all,
                  const at::Tensor& found_inf) {
  std::vector<at::Tensor>& steps = lists.states[2];
  if (all) {  // one operation instead of one per parameter
    counts_[group].add_(1);
    if (found_inf.defined()) counts_[group].sub_(found_inf);
  } else {
    at::_foreach_add_(steps, 1);
    if (found_inf.defined()) at::_foreach_sub_(steps, std::vector<at::Tensor>(steps.size(), found_inf));
  }
  const at::TensorList largest = config_.amsgrad ? at::TensorList(lists.states[3]) : at::TensorList();
  const auto found = found_inf.defined() ? std::optional<at::Tensor>(found_inf) : std::nullopt;
  const auto apply = [&](auto kernel, const auto& lr) {
    kernel(lists.parameters, gradients, lists.states[0], lists.states[1], largest, steps, lr, config_.betas[0],
           config_.betas[1], groups_[group].weight_decay, config_.eps, config_.amsgrad, config_.maximize,
           /*grad_scale=*/std::nullopt, found);
  };
  const auto adam = [](auto&&... arguments) { at::_fused_adam_(arguments...); };
  const auto adamw = [](auto&&... arguments) { at::_fused_adamw_(arguments...); };
  const Rate& lr = rate(group);
  if (config_.kind == OptimizerKind::kAdam) {
    lr.on_device.defined() ? apply(adam, lr.on_device) : apply(adam, lr.value);
  } else {
    lr.on_device.defined() ? apply(adamw, lr.on_device) : apply(adamw, lr.value);
  }
}

}  // namespace oarlock
