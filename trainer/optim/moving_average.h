// An exponential moving average of a model's weights.
//   average <- decay * average + (1 - decay) * weight, after every optimizer step; it begins as the initial weights
// decay is ema.decay, or with warm-up min(ema.decay, (1 + n) / (10 + n)) at update n, counted from 1 (the rule of
// TensorFlow's ExponentialMovingAverage(num_updates), which Score-Entropy-Discrete-Diffusion uses). A step that was
// skipped counts as one that changed nothing.
#pragma once

#include <vector>

#include "trainer/checkpoint/stateful.h"
#include "trainer/config/ema.h"
#include "trainer/nn/named_tensors.h"

namespace oarlock {

class MovingAverage final : public Stateful {
 public:
  // Starts from the values of now. Buffers count where ema.buffers says so and they are floating-point.
  MovingAverage(const EmaConfig& config, const std::vector<NamedTensor>& parameters,
                const std::vector<NamedTensor>& buffers);

  void update();

  // While one lives, the model has the averaged weights: they are exchanged by pointer, nothing is copied, and
  // afterwards the model's own are back bit for bit. No update and no checkpoint meanwhile.
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
  Result<void> missing() override;  // begins at the weights of now

 private:
  void exchange();

  EmaConfig config_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> live_;      // the model's
  std::vector<at::Tensor> averages_;  // ours
  int64_t updates_ = 0;
};

}  // namespace oarlock
