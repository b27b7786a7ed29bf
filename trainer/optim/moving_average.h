// An exponential moving average of a model's weights.
#pragma once

#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/optimization.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {

// Computes average <- decay * average + (1 - decay) * weight after every optimizer step, starting from the initial
// weights. The decay is ema.decay, or with warm-up min(ema.decay, (1 + n) / (10 + n)) at update n, counted from 1 (the
// rule of TensorFlow's ExponentialMovingAverage(num_updates), which Score-Entropy-Discrete-Diffusion uses). A skipped
// step counts as a step without a change.
class MovingAverage final : public Stateful {
 public:
  // Starts from the current values. Includes the floating-point buffers if ema.buffers is set.
  MovingAverage(const EmaConfig& config, const std::vector<NamedTensor>& parameters,
                const std::vector<NamedTensor>& buffers);

  void update();

  // While an instance exists, the model has the averaged weights. They are exchanged by pointer without a copy; the
  // destructor restores the model's own weights bit for bit. No update and no checkpoint may happen in between.
  class Exchange {
   public:
    explicit Exchange(MovingAverage& average) : average_(average) { average_.exchange(); }
    ~Exchange() { average_.exchange(); }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    MovingAverage& average_;
  };

  double decay() const;  // of the next update

  std::string_view section() const override { return "ema"; }
  TensorMap tensors() const override;  // by the names of parameters and buffers
  nlohmann::json values() const override { return {{"updates", updates_}}; }
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override;  // starts from the current weights

 private:
  void exchange();

  EmaConfig config_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> live_;  // the model's tensors
  std::vector<at::Tensor> averages_;
  int64_t updates_ = 0;
};

}  // namespace oarlock
