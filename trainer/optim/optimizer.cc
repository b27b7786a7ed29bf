#include "trainer/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "common/status_macros.h"
#include "trainer/config/name_pattern.h"
#include "trainer/optim/fused_optimizers.h"

namespace oarlock {
namespace {

class Matcher {
 public:
  static Result<Matcher> create(const ParameterGroupConfig& config) {
    return NamePattern::parse(config.match).map([&](NamePattern pattern) {
      return Matcher(config.preset, std::move(pattern));
    });
  }

  bool matches(const NamedTensor& parameter) const {
    if (preset_ == GroupPreset::kNoDecay) return parameter.tensor.dim() <= 1;
    return pattern_.is_found_in(parameter.name);
  }

 private:
  Matcher(GroupPreset preset, NamePattern pattern) : preset_(preset), pattern_(std::move(pattern)) {}

  GroupPreset preset_;
  NamePattern pattern_;
};

tl::unexpected<Error> empty_group(size_t index, const ParameterGroupConfig& config, const Matcher& matcher,
                                  const std::vector<NamedTensor>& parameters) {
  const bool all_taken = std::any_of(parameters.begin(), parameters.end(), [&](const NamedTensor& parameter) {
    return parameter.tensor.requires_grad() && matcher.matches(parameter);
  });
  const std::string what = config.preset == GroupPreset::kNoDecay ? "the preset no_decay" : "'" + config.match + "'";
  return fail(ExitCode::kConfig,
              all_taken
                  ? fmt::format("optimizer.groups[{}]: every parameter that {} matches belongs to a group before it; "
                                "put the narrower group first",
                                index, what)
                  : fmt::format("optimizer.groups[{}]: {} matches no trainable parameter of the model; the names "
                                "begin with '{}'",
                                index, what, parameters.empty() ? "" : parameters.front().name));
}

void add_by_type(double lr, double weight_decay, const std::vector<NamedTensor>& members,
                 std::vector<ParameterGroup>& out) {
  std::map<std::pair<at::ScalarType, at::DeviceType>, std::vector<NamedTensor>> by_type;
  for (const NamedTensor& member : members) {
    by_type[{member.tensor.scalar_type(), member.tensor.device().type()}].push_back(member);
  }
  for (auto& [type, parameters] : by_type) out.push_back({lr, weight_decay, std::move(parameters)});
}

}  // namespace

// ---- parameter groups ----------------------------------------------------------------------------------------------

Result<std::vector<ParameterGroup>> group_parameters(const OptimizerConfig& config,
                                                     const std::vector<NamedTensor>& parameters) {
  const size_t rest = config.groups.size();
  std::vector<Matcher> matchers;
  for (size_t i = 0; i < rest; ++i) {
    Result<Matcher> matcher = Matcher::create(config.groups[i]);
    if (!matcher) {
      return fail(ExitCode::kConfig, fmt::format("optimizer.groups[{}].match: {}", i, matcher.error().message));
    }
    matchers.push_back(std::move(*matcher));
  }
  std::vector<std::vector<NamedTensor>> members(rest + 1);
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    size_t index = 0;
    while (index < rest && !matchers[index].matches(parameter)) ++index;
    members[index].push_back(parameter);
  }
  const double weight_decay = config.weight_decay.value_or(default_weight_decay(config.kind));
  std::vector<ParameterGroup> out;
  for (size_t i = 0; i < rest; ++i) {
    const ParameterGroupConfig& group = config.groups[i];
    if (members[i].empty()) return empty_group(i, group, matchers[i], parameters);
    const double own_decay = group.preset == GroupPreset::kNoDecay ? 0 : weight_decay;
    add_by_type(group.lr.value_or(config.lr) * group.lr_scale, group.weight_decay.value_or(own_decay), members[i], out);
  }
  add_by_type(config.lr, weight_decay, members[rest], out);
  return out;
}

// ---- Optimizer -----------------------------------------------------------------------------------------------------

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

void Optimizer::set_base_rates(const std::vector<double>& rates) {
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i].lr = rates.at(i);
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
  ASSIGN_OR_RETURN(std::vector<ParameterGroup> groups, group_parameters(config, parameters));
  if (config.kind == OptimizerKind::kSgd) return std::make_unique<Sgd>(config, std::move(groups));
  return std::make_unique<Adam>(config, std::move(groups));
}

at::Tensor clip_gradients(const GradientConfig& config, const GradientLists& gradients) {
  if (config.clip_value) clip_grad_value_(gradients, *config.clip_value);
  if (!config.clip_norm) return {};
  const double order = config.norm_type == NormType::kL2 ? 2.0 : std::numeric_limits<double>::infinity();
  return clip_grad_norm_(gradients, *config.clip_norm, order);
}

}  // namespace oarlock
