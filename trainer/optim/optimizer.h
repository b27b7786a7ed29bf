// SGD, Adam and AdamW on LibTorch's fused kernels, which CPU and CUDA have; the arithmetic is that of torch.optim.
//
// The lists of tensors that the kernels take are made once. A step has no work per parameter on the host but to collect
// its gradient, and never waits for the device: whether it is skipped is decided there (found_inf).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "trainer/checkpoint/stateful.h"
#include "trainer/optim/parameter_groups.h"

namespace oarlock {

// Gradients that are there, in lists of one type and device.
using GradientLists = std::vector<std::vector<at::Tensor>>;

class Optimizer : public Stateful {
 public:
  // Takes the rate of every group from its lr. On CUDA the rates lie on the device, so that a recorded step can be
  // replayed with others; this call does not belong inside the recording.
  void set_learning_rates(const std::function<double(double lr)>& rate_of);

  // SGD's momentum, the first beta of Adam: of the steps from now on. A number of the host, which a recorded step would
  // not see change.
  virtual void set_momentum(double momentum) = 0;

  // Collects the gradients of this step: one list per group. Valid until they are cleared.
  const GradientLists& gather_gradients();

  // One update of the parameters that have a gradient, with the gradients gathered last. `found_inf`, where given, is a
  // float32 scalar on the parameters' device: 1 leaves everything as it was, the counts of steps included.
  void step(const at::Tensor& found_inf = {});

  const std::vector<ParameterGroup>& groups() const { return groups_; }

  std::string_view section() const override { return "optimizer"; }

  // "<parameter>.<state>", e.g. "fc.weight.exp_avg": of Adam and AdamW exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad)
  // and step (a float32 scalar); of SGD with momentum momentum_buffer.
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

  // Zeros like a parameter, for a state that has its shape.
  static std::vector<at::Tensor> zeros_like(const ParameterGroup& group);

  // `lists` and `gradients` hold the parameters that have a gradient; `all` says that these are the whole group.
  virtual void update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool all,
                      const at::Tensor& found_inf) = 0;

  const Rate& rate(size_t group) const { return rates_[group]; }

  std::vector<ParameterGroup> groups_;
  std::vector<Lists> lists_;  // by group; the derived class fills in the states

 private:
  std::vector<std::string> state_names_;
  std::vector<Rate> rates_;
  GradientLists gradients_;
};

// Of the trainable parameters. Fails as group_parameters() does.
Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerConfig& config,
                                                  const std::vector<NamedTensor>& parameters);

}  // namespace oarlock
