#include "ddp/optimizer_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "common/status_macros.h"

namespace oarlock {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

constexpr char kLearningRates[] = "lr";

// A member of the state of one parameter: a tensor with the shape and dtype of the parameter, or a number.
struct StateMember {
  const char* name = nullptr;
  at::Tensor* tensor = nullptr;
  int64_t* number = nullptr;
  bool is_used = true;  // with the options of the parameter's group
};
using StateMembers = std::vector<StateMember>;

StateMembers members(torch::optim::SGDParamState& state, const torch::optim::SGDOptions& options) {
  return {{.name = "momentum_buffer", .tensor = &state.momentum_buffer(), .is_used = options.momentum() != 0}};
}

template <typename State, typename Options>
StateMembers adam_members(State& state, const Options& options) {
  return {{.name = "step", .number = &state.step()},
          {.name = "exp_avg", .tensor = &state.exp_avg()},
          {.name = "exp_avg_sq", .tensor = &state.exp_avg_sq()},
          {.name = "max_exp_avg_sq", .tensor = &state.max_exp_avg_sq(), .is_used = options.amsgrad()}};
}
StateMembers members(torch::optim::AdamParamState& state, const torch::optim::AdamOptions& options) {
  return adam_members(state, options);
}
StateMembers members(torch::optim::AdamWParamState& state, const torch::optim::AdamWOptions& options) {
  return adam_members(state, options);
}

StateMembers members(torch::optim::AdagradParamState& state, const torch::optim::AdagradOptions&) {
  return {{.name = "step", .number = &state.step()}, {.name = "sum", .tensor = &state.sum()}};
}

StateMembers members(torch::optim::RMSpropParamState& state, const torch::optim::RMSpropOptions& options) {
  return {{.name = "step", .number = &state.step()},
          {.name = "square_avg", .tensor = &state.square_avg()},
          {.name = "momentum_buffer", .tensor = &state.momentum_buffer(), .is_used = options.momentum() > 0},
          {.name = "grad_avg", .tensor = &state.grad_avg(), .is_used = options.centered()}};
}

// What this file needs to know about a class of optimizers.
struct OptimizerClass {
  const char* name;
  bool (*matches)(const torch::optim::Optimizer& optimizer);
  std::unique_ptr<OptimizerParamState> (*new_state)();
  StateMembers (*members_of)(OptimizerParamState& state, const OptimizerOptions& options);
  bool has_initial_state = false;  // the state of each parameter exists before the first step
};

template <typename Optimizer, typename State, typename Options>
OptimizerClass optimizer_class(const char* name, bool has_initial_state = false) {
  return {.name = name,
          .matches = [](const auto& optimizer) { return dynamic_cast<const Optimizer*>(&optimizer) != nullptr; },
          .new_state = []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<State>(); },
          .members_of =
              [](OptimizerParamState& state, const OptimizerOptions& options) {
                return members(dynamic_cast<State&>(state), dynamic_cast<const Options&>(options));
              },
          .has_initial_state = has_initial_state};
}

Result<OptimizerClass> class_of(const torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;
  const std::array known{
      optimizer_class<optim::SGD, optim::SGDParamState, optim::SGDOptions>("SGD"),
      optimizer_class<optim::Adam, optim::AdamParamState, optim::AdamOptions>("Adam"),
      optimizer_class<optim::AdamW, optim::AdamWParamState, optim::AdamWOptions>("AdamW"),
      optimizer_class<optim::Adagrad, optim::AdagradParamState, optim::AdagradOptions>("Adagrad",
                                                                                       /*has_initial_state=*/true),
      optimizer_class<optim::RMSprop, optim::RMSpropParamState, optim::RMSpropOptions>("RMSprop"),
  };
  const auto* found =
      std::find_if(known.begin(), known.end(), [&](const OptimizerClass& item) { return item.matches(optimizer); });
  if (found == known.end()) {
    return fail(ExitCode::kUsage,
                "the state of this optimizer cannot be saved: use SGD, Adam, AdamW, Adagrad or RMSprop of LibTorch, or "
                "pass its tensors as TrainingState::tensors");
  }
  return *found;
}

// A parameter of the optimizer with its name and the options of its group.
struct OwnedParameter {
  std::string name;
  at::Tensor tensor;
  const OptimizerOptions* options = nullptr;
};

Result<std::vector<OwnedParameter>> parameters_of(const torch::optim::Optimizer& optimizer,
                                                  const std::vector<NamedTensor>& parameters) {
  std::map<const void*, std::string> names;
  for (const NamedTensor& item : parameters) names[item.tensor.unsafeGetTensorImpl()] = item.name;
  std::vector<OwnedParameter> out;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end()) {
        return fail(ExitCode::kUsage, fmt::format("the optimizer has a parameter of {} that the module does not have: "
                                                  "construct it from module.parameters()",
                                                  shape_text(parameter)));
      }
      out.push_back({found->second, parameter, &group.options()});
    }
  }
  return out;
}

std::string tensor_name(const OwnedParameter& parameter, const StateMember& member) {
  return parameter.name + "." + member.name;
}

bool has_state(const OwnedParameter& parameter, const StateMembers& members, const TensorMap& saved) {
  return std::any_of(members.begin(), members.end(),
                     [&](const StateMember& member) { return saved.contains(tensor_name(parameter, member)); });
}

}  // namespace

Result<std::string> optimizer_name(const torch::optim::Optimizer& optimizer) {
  ASSIGN_OR_RETURN(const OptimizerClass kind, class_of(optimizer));
  return std::string(kind.name);
}

Result<TensorMap> optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                    const std::vector<NamedTensor>& parameters) {
  ASSIGN_OR_RETURN(const OptimizerClass kind, class_of(optimizer));
  ASSIGN_OR_RETURN(const std::vector<OwnedParameter> owned, parameters_of(optimizer, parameters));
  TensorMap out;
  for (const OwnedParameter& parameter : owned) {
    const auto state = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (state == optimizer.state().end()) continue;
    for (const StateMember& member : kind.members_of(*state->second, *parameter.options)) {
      if (!member.is_used || (member.tensor != nullptr && !member.tensor->defined())) continue;
      out[tensor_name(parameter, member)] =
          member.tensor != nullptr ? member.tensor->detach() : at::scalar_tensor(*member.number, at::kLong);
    }
  }
  std::vector<double> rates;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups())
    rates.push_back(group.options().get_lr());
  out[kLearningRates] = at::tensor(rates, at::kDouble);
  return out;
}

Result<TensorMap> expected_optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                             const std::vector<NamedTensor>& parameters, const TensorMap& saved) {
  ASSIGN_OR_RETURN(const OptimizerClass kind, class_of(optimizer));
  ASSIGN_OR_RETURN(const std::vector<OwnedParameter> owned, parameters_of(optimizer, parameters));
  const std::unique_ptr<OptimizerParamState> state = kind.new_state();  // for its names
  const auto meta = at::TensorOptions(at::kMeta);
  TensorMap out;
  for (const OwnedParameter& parameter : owned) {
    const StateMembers members = kind.members_of(*state, *parameter.options);
    if (!kind.has_initial_state && !has_state(parameter, members, saved)) continue;
    for (const StateMember& member : members) {
      if (!member.is_used) continue;
      out[tensor_name(parameter, member)] =
          member.tensor != nullptr ? at::empty(parameter.tensor.sizes(), meta.dtype(parameter.tensor.scalar_type()))
                                   : at::empty({}, meta.dtype(at::kLong));
    }
  }
  out[kLearningRates] = at::empty({static_cast<int64_t>(optimizer.param_groups().size())}, meta.dtype(at::kDouble));
  return out;
}

Result<void> set_optimizer_tensors(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
                                   const TensorMap& saved) {
  const at::NoGradGuard no_grad;
  ASSIGN_OR_RETURN(const OptimizerClass kind, class_of(optimizer));
  ASSIGN_OR_RETURN(const std::vector<OwnedParameter> owned, parameters_of(optimizer, parameters));
  optimizer.state().clear();
  for (const OwnedParameter& parameter : owned) {
    std::unique_ptr<OptimizerParamState> state = kind.new_state();
    const StateMembers members = kind.members_of(*state, *parameter.options);
    if (!has_state(parameter, members, saved)) continue;
    for (const StateMember& member : members) {
      if (!member.is_used) continue;
      const at::Tensor& value = saved.at(tensor_name(parameter, member));
      if (member.tensor != nullptr) {
        *member.tensor = at::empty_like(parameter.tensor.detach()).copy_(value);
      } else {
        *member.number = value.item<int64_t>();
      }
    }
    optimizer.state()[parameter.tensor.unsafeGetTensorImpl()] = std::move(state);
  }
  const at::Tensor rates = saved.at(kLearningRates).cpu();
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i)
    optimizer.param_groups()[i].options().set_lr(rates[static_cast<int64_t>(i)].item<double>());
  return {};
}

}  // namespace oarlock
