// The optimizers that make_optimizer() creates.
#pragma once

#include <set>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace oarlock {

// Adam and AdamW: torch/optim/adam.py, _fused_adam.
class Adam final : public Optimizer {
 public:
  Adam(const OptimizerConfig& config, std::vector<ParameterGroup> groups);

  void set_momentum(double momentum) override { config_.betas[0] = momentum; }

 private:
  void update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool all,
              const at::Tensor& found_inf) override;

  OptimizerConfig config_;
  std::vector<at::Tensor> counts_;  // by group: the step counts of all its parameters in one tensor
};

// SGD with momentum: torch/optim/sgd.py, _fused_sgd.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, std::vector<ParameterGroup> groups);

  // Must be above 0 if and only if the configured momentum is, which determines whether momentum buffers exist.
  void set_momentum(double momentum) override { config_.momentum = momentum; }

  // The parameters that have not had their first step; used with dampening only.
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;

 private:
  void update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool all,
              const at::Tensor& found_inf) override;
  void apply(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool first,
             const at::Tensor& found_inf) const;
  void apply_first_steps(size_t group, const Lists& lists, const std::vector<at::Tensor>& gradients,
                         const at::Tensor& found_inf);

  OptimizerConfig config_;
  // The initial momentum buffer is the first gradient. Without dampening, a buffer of zeros is equivalent. With
  // dampening the first step differs, and these parameters (by identity) have not had it yet.
  std::set<const void*> before_first_;
};

}  // namespace oarlock
