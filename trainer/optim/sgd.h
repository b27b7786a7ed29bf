// SGD with momentum: torch/optim/sgd.py, _fused_sgd. Made by make_optimizer().
#pragma once

#include <set>
#include <string>

#include "trainer/optim/optimizer.h"

namespace oarlock {

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, std::vector<ParameterGroup> groups);

  // Above 0, and only where the configuration's is: it decides whether there are buffers.
  void set_momentum(double momentum) override { config_.momentum = momentum; }

  // The parameters without a first step, where that matters.
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
  // The momentum buffer begins as the first gradient. Without dampening a buffer of zeros comes to the same; with it
  // the first step is another one, and these parameters (by their identity) have it before them.
  std::set<const void*> before_first_;
};

}  // namespace oarlock
