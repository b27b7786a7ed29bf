#include "trainer/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

namespace oarlock {
namespace {

constexpr char kBeforeFirst[] = "before_first_step";

const void* identity(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

}  // namespace

Sgd::Sgd(const OptimizerConfig& config, std::vector<ParameterGroup> groups)
    : Optimizer(std::move(groups), {"momentum_buffer"}), config_(config) {
  if (config_.momentum == 0) return;
  for (size_t i = 0; i < groups_.size(); ++i) {
    lists_[i].states = {zeros_like(groups_[i])};
    if (config_.dampening == 0) continue;
    for (const at::Tensor& parameter : lists_[i].parameters) before_first_.insert(identity(parameter));
  }
}

nlohmann::json Sgd::values() const {
  nlohmann::json names = nlohmann::json::array();
  for (const ParameterGroup& group : groups_) {
    for (const NamedTensor& parameter : group.parameters) {
      if (before_first_.contains(identity(parameter.tensor))) names.push_back(parameter.name);
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
      if (names.contains(parameter.name)) before_first_.insert(identity(parameter.tensor));
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

// With dampening only, and until every parameter has had its first step: the one place that asks the device whether the
// step counts.
void Sgd::apply_first_steps(size_t group, const Lists& lists, const std::vector<at::Tensor>& gradients,
                            const at::Tensor& found_inf) {
  if (found_inf.defined() && found_inf.item<float>() != 0) return;
  Lists parts[2];
  std::vector<at::Tensor> part_gradients[2];
  for (size_t i = 0; i < lists.parameters.size(); ++i) {
    const size_t part = before_first_.erase(identity(lists.parameters[i]));
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
