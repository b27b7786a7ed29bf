#include "trainer/optim/fused_optimizers.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>

namespace oarlock {
namespace {

constexpr char kBeforeFirst[] = "before_first_step";

const void* identity_of(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

std::vector<std::string> state_names(bool amsgrad) {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq", "step"};
  if (amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

}  // namespace

// ---- Adam and AdamW ------------------------------------------------------------------------------------------------

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

// ---- SGD -----------------------------------------------------------------------------------------------------------

Sgd::Sgd(const OptimizerConfig& config, std::vector<ParameterGroup> groups)
    : Optimizer(std::move(groups), {"momentum_buffer"}), config_(config) {
  if (config_.momentum == 0) return;
  for (size_t i = 0; i < groups_.size(); ++i) {
    lists_[i].states = {zeros_like(groups_[i])};
    if (config_.dampening == 0) continue;
    for (const at::Tensor& parameter : lists_[i].parameters) before_first_.insert(identity_of(parameter));
  }
}

nlohmann::json Sgd::values() const {
  nlohmann::json names = nlohmann::json::array();
  for (const ParameterGroup& group : groups_) {
    for (const NamedTensor& parameter : group.parameters) {
      if (before_first_.contains(identity_of(parameter.tensor))) names.push_back(parameter.name);
    }
  }
  if (names.empty()) return nlohmann::json::object();
  return {{kBeforeFirst, names}};
}

Result<void> Sgd::restored(const nlohmann::json& values) {
  std::set<std::string> names;
  if (values.contains(kBeforeFirst)) names = values[kBeforeFirst].get<std::set<std::string>>();
  before_first_.clear();
  for (const ParameterGroup& group : groups_) {
    for (const NamedTensor& parameter : group.parameters) {
      if (names.contains(parameter.name)) before_first_.insert(identity_of(parameter.tensor));
    }
  }
  return {};
}

void Sgd::update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool,
                 const at::Tensor& found_inf) {
  if (before_first_.empty()) {
    apply(group, lists, gradients, /*first=*/false, found_inf);
  } else {
    apply_first_steps(group, lists, gradients, found_inf);
  }
}

// Called with dampening only, until every parameter has had its first step. The only update that waits for the device,
// to learn whether the step is skipped.
void Sgd::apply_first_steps(size_t group, const Lists& lists, const std::vector<at::Tensor>& gradients,
                            const at::Tensor& found_inf) {
  if (found_inf.defined() && found_inf.item<float>() != 0) return;
  Lists parts[2];
  std::vector<at::Tensor> part_gradients[2];
  for (size_t i = 0; i < lists.parameters.size(); ++i) {
    const size_t part = before_first_.erase(identity_of(lists.parameters[i]));
    parts[part].parameters.push_back(lists.parameters[i]);
    parts[part].states.resize(1);
    parts[part].states[0].push_back(lists.states[0][i]);
    part_gradients[part].push_back(gradients[i]);
  }
  for (const size_t part : {0, 1}) {
    if (!parts[part].parameters.empty()) apply(group, parts[part], part_gradients[part], part == 1, {});
  }
}

void Sgd::apply(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool first,
                const at::Tensor& found_inf) const {
  const at::TensorList buffers = lists.states.empty() ? at::TensorList() : at::TensorList(lists.states[0]);
  const auto found = found_inf.defined() ? std::optional<at::Tensor>(found_inf) : std::nullopt;
  const auto kernel = [&](const auto& lr) {
    at::_fused_sgd_(lists.parameters, gradients, buffers, groups_[group].weight_decay, config_.momentum, lr,
                    config_.dampening, config_.nesterov, config_.maximize, first, /*grad_scale=*/std::nullopt, found);
  };
  rate(group).on_device.defined() ? kernel(rate(group).on_device) : kernel(rate(group).value);
}

}  // namespace oarlock
