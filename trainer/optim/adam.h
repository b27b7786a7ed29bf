// Adam and AdamW: torch/optim/adam.py, _fused_adam. Made by make_optimizer().
#pragma once

#include "trainer/optim/optimizer.h"

namespace oarlock {

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerConfig& config, std::vector<ParameterGroup> groups);

  void set_momentum(double momentum) override { config_.betas[0] = momentum; }

 private:
  void update(size_t group, Lists& lists, const std::vector<at::Tensor>& gradients, bool all,
              const at::Tensor& found_inf) override;

  OptimizerConfig config_;
  std::vector<at::Tensor> counts_;  // by group: the counts of all its parameters in one tensor
};

}  // namespace oarlock
