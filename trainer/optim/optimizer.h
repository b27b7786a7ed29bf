// SGD, Adam and AdamW with the arithmetic of torch.optim, on LibTorch's fused CPU and CUDA kernels, and gradient
// clipping.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "ddp/clip_grad.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/optimization.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {

// Parameters with the same hyperparameters. Not empty; of one type and device, as the fused kernels require.
struct ParameterGroup {
  double lr = 0;  // before the schedule
  double weight_decay = 0;
  std::vector<NamedTensor> parameters;
};

// Splits the trainable parameters by optimizer.groups, in the order of the groups; the parameters that match no group
// come last. Fails with kConfig if a group has no parameters, because its pattern matches none or earlier groups have
// taken them.
Result<std::vector<ParameterGroup>> group_parameters(const OptimizerConfig& config,
                                                     const std::vector<NamedTensor>& parameters);

// Updates the parameters of all groups. The lists of tensors that the kernels take are built once, so the host's only
// work per parameter and step is to collect its gradient. A step never waits for the device: whether it is skipped is
// decided there (`found_inf`).
//
// Its checkpoint section has the tensors "<parameter>.<state>", e.g. "fc.weight.exp_avg": exp_avg, exp_avg_sq,
// max_exp_avg_sq (amsgrad) and step (a float32 scalar) for Adam and AdamW; momentum_buffer for SGD with momentum.
class Optimizer : public Stateful {
 public:
  // Sets the learning rate of every group to rate_of(its lr). On CUDA the learning rates are device tensors, so that a
  // recorded step can be replayed with other ones; this call must not be recorded.
  void set_learning_rates(const std::function<double(double lr)>& rate_of);

  // Sets the learning rates before the schedule, one for each of groups().
  void set_base_rates(const std::vector<double>& rates);

  // Sets SGD's momentum, or Adam's first beta, of the following steps. The value is on the host, so a recorded step
  // does not use the new one.
  virtual void set_momentum(double momentum) = 0;

  // Collects the gradients of this step, one list per group. The lists are valid until the gradients are cleared.
  const GradientLists& gather_gradients();

  // Updates the parameters that have a gradient, with the gradients gathered last. `found_inf`, if defined, is a
  // float32 scalar on the parameters' device: 1 leaves everything unchanged, including the step counts.
  void step(const at::Tensor& found_inf = {});

  const std::vector<ParameterGroup>& groups() const { return groups_; }

  std::string_view section() const override { return "optimizer"; }
  TensorMap tensors() const override;
  nlohmann::json values() const override { return nlohmann::json::object(); }
  Result<void> restored(const nlohmann::json&) override { return {}; }
  Result<void> missing() override { return {}; }

 protected:
  // The tensors of a group that an update works on, index by index: one list per name of state.
  struct Lists {
    std::vector<at::Tensor> parameters;
    std::vector<std::vector<at::Tensor>> states;
  };
  struct Rate {
    double value = 0;
    at::Tensor on_device;  // float32 scalar; undefined on the CPU
  };

  Optimizer(std::vector<ParameterGroup> groups, std::vector<std::string> state_names);

  // Zeros with the shape of each parameter, for a state.
  static std::vector<at::Tensor> zeros_like(const ParameterGroup& group);

  // `lists` and `gradients` hold the parameters that have a gradient; `all`: these are the whole group.
  virtual void update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool all,
                      const at::Tensor& found_inf) = 0;

  const Rate& rate(size_t group) const { return rates_[group]; }

  std::vector<ParameterGroup> groups_;
  std::vector<Lists> lists_;  // by group; the derived class adds the states

 private:
  std::vector<std::string> state_names_;
  std::vector<Rate> rates_;
  GradientLists gradients_;
};

// Creates the configured optimizer for the trainable parameters. Fails as group_parameters() does.
Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerConfig& config,
                                                  const std::vector<NamedTensor>& parameters);

// Clips the gradients in place as the section "gradient" specifies, with clip_grad_value_() and clip_grad_norm_()
// (ddp/clip_grad.h). With clip_norm, returns the norm of the latter; otherwise an undefined tensor. The section
// "nonfinite" defines how a step with a norm that is not finite is handled.
at::Tensor clip_gradients(const GradientConfig& config, const GradientLists& gradients);

}  // namespace oarlock
