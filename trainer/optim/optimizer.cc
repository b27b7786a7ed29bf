#include "trainer/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace oarlock {
namespace {

// The fused kernels take lists of one type and device.
std::vector<std::vector<NamedTensor>> group_by_type(const std::vector<NamedTensor>& parameters) {
  std::map<std::pair<at::ScalarType, at::DeviceType>, std::vector<NamedTensor>> groups;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.requires_grad()) {
      groups[{parameter.tensor.scalar_type(), parameter.tensor.device().type()}].push_back(parameter);
    }
  }
  std::vector<std::vector<NamedTensor>> out;
  for (auto& [type, group] : groups) out.push_back(std::move(group));
  return out;
}

std::vector<at::Tensor> zeros_like(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& parameter : parameters) out.push_back(at::zeros_like(parameter.tensor.detach()));
  return out;
}

class AdamW final : public Optimizer {
 public:
  AdamW(const OptimizerConfig& config, const std::vector<NamedTensor>& parameters) : config_(config) {
    for (auto& members : group_by_type(parameters)) {
      Group group;
      group.exp_avgs = zeros_like(members);
      group.exp_avg_sqs = zeros_like(members);
      // One tensor for all counts: where every parameter has a gradient they are raised by one operation.
      group.counts = at::zeros({static_cast<int64_t>(members.size())},
                               members[0].tensor.options().dtype(at::kFloat).requires_grad(false));
      for (int64_t i = 0; i < group.counts.numel(); ++i) group.steps.push_back(group.counts.select(0, i));
      group.parameters = std::move(members);
      groups_.push_back(std::move(group));
    }
  }

  void step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    for (Group& group : groups_) {
      std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const at::Tensor& gradient = group.parameters[i].tensor.grad();
        if (!gradient.defined()) continue;
        parameters.push_back(group.parameters[i].tensor);
        gradients.push_back(gradient);
        exp_avgs.push_back(group.exp_avgs[i]);
        exp_avg_sqs.push_back(group.exp_avg_sqs[i]);
        steps.push_back(group.steps[i]);
      }
      if (parameters.empty()) continue;
      if (parameters.size() == group.parameters.size()) {
        group.counts.add_(1);
      } else {
        at::_foreach_add_(steps, 1);
      }
      at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps, learning_rate,
                        config_.betas[0], config_.betas[1], config_.weight_decay, config_.eps, /*amsgrad=*/false,
                        /*maximize=*/false);
    }
  }

  TensorMap state() const override {
    TensorMap out;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const std::string& name = group.parameters[i].name;
        out[name + ".exp_avg"] = group.exp_avgs[i];
        out[name + ".exp_avg_sq"] = group.exp_avg_sqs[i];
        out[name + ".step"] = group.steps[i];
      }
    }
    return out;
  }

 private:
  struct Group {
    std::vector<NamedTensor> parameters;
    std::vector<at::Tensor> exp_avgs;
    std::vector<at::Tensor> exp_avg_sqs;
    at::Tensor counts;              // updates done, by parameter
    std::vector<at::Tensor> steps;  // its elements
  };
  OptimizerConfig config_;
  std::vector<Group> groups_;
};

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, const std::vector<NamedTensor>& parameters) : config_(config) {
    for (auto& members : group_by_type(parameters)) {
      // Without dampening a buffer of zeros gives the same first step as PyTorch's copy of the gradient.
      std::vector<at::Tensor> buffers = config.momentum > 0 ? zeros_like(members) : std::vector<at::Tensor>{};
      groups_.push_back({std::move(members), std::move(buffers)});
    }
  }

  void step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    for (Group& group : groups_) {
      std::vector<at::Tensor> parameters, gradients, buffers;
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const at::Tensor& gradient = group.parameters[i].tensor.grad();
        if (!gradient.defined()) continue;
        parameters.push_back(group.parameters[i].tensor);
        gradients.push_back(gradient);
        if (!group.buffers.empty()) buffers.push_back(group.buffers[i]);
      }
      if (parameters.empty()) continue;
      at::_fused_sgd_(parameters, gradients, buffers, config_.weight_decay, config_.momentum, learning_rate,
                      /*dampening=*/0.0, config_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    }
  }

  TensorMap state() const override {
    TensorMap out;
    for (const Group& group : groups_) {
      for (size_t i = 0; i < group.buffers.size(); ++i)
        out[group.parameters[i].name + ".momentum_buffer"] = group.buffers[i];
    }
    return out;
  }

 private:
  struct Group {
    std::vector<NamedTensor> parameters;
    std::vector<at::Tensor> buffers;
  };
  OptimizerConfig config_;
  std::vector<Group> groups_;
};

}  // namespace

Result<void> copy_tensors(const TensorMap& from, const TensorMap& to, const std::string& what) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : to) {
    const auto found = from.find(name);
    if (found == from.end()) {
      return fail(ExitCode::kDataErr,
                  fmt::format("the checkpoint's {} has no '{}': it was written for another model or optimizer; "
                              "correct the configuration or use another checkpoint.dir",
                              what, name));
    }
    if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type()) {
      return fail(
          ExitCode::kDataErr,
          fmt::format(
              "the checkpoint's {} '{}' is {} [{}], this model's is {} [{}]; correct the configuration or use another "
              "checkpoint.dir",
              what, name, c10::toString(found->second.scalar_type()), fmt::join(found->second.sizes(), ", "),
              c10::toString(target.scalar_type()), fmt::join(target.sizes(), ", ")));
    }
  }
  for (const auto& [name, source] : from) {
    if (!to.contains(name)) {
      return fail(ExitCode::kDataErr,
                  fmt::format("the checkpoint's {} has '{}', which this model does not have; correct the configuration "
                              "or use another checkpoint.dir",
                              what, name));
    }
  }
  for (const auto& [name, target] : to) at::Tensor(target).copy_(from.at(name));
  return {};
}

Result<void> Optimizer::load(const TensorMap& saved) { return copy_tensors(saved, state(), "optimizer state"); }

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const std::vector<NamedTensor>& parameters) {
  if (config.kind == OptimizerKind::kSgd) return std::make_unique<Sgd>(config, parameters);
  return std::make_unique<AdamW>(config, parameters);
}

}  // namespace oarlock
