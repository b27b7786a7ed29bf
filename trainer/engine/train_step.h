// One optimizer step: forward and backward of each micro-batch, then unscale, clip, update, scale, average. It waits
// for the device nowhere; read() does.
//
// Non-finite values are dealt with together by all ranks and on the device. Gradients are averaged over the ranks
// before they are looked at, so every rank finds the same, and the optimizer's kernels leave everything as it was where
// found_inf is 1. So does the averaging, and the model's buffers become again what they were. For nonfinite.loss: skip,
// a rank whose loss is not finite multiplies its gradient by NaN, and the average carries that to the others: no
// collective of its own, no waiting.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/device/step_graph.h"
#include "trainer/distributed/distributed_model.h"
#include "trainer/engine/buffer_rollback.h"
#include "trainer/engine/nonfinite_steps.h"
#include "trainer/engine/task.h"
#include "trainer/optim/grad_scaler.h"
#include "trainer/optim/moving_average.h"
#include "trainer/optim/optimizer.h"
#include "trainer/telemetry/phase_clock.h"

namespace oarlock {

// What the device knows about the last step.
struct StepReading {
  double loss = 0;                      // this rank's mean over the step's samples
  std::optional<double> gradient_norm;  // before clipping; with gradient.clip_norm
  std::optional<double> loss_scale;     // of fp16
  int64_t nonfinite_losses = 0;         // steps whose loss was not finite on this rank, in this process's life
  int64_t skipped = 0;                  // steps that were not taken, in this process's life
  int64_t skipped_in_a_row = 0;         // up to now
  // The first of those since the last reading, as the steps done with it.
  std::optional<int64_t> first_nonfinite_loss;
  std::optional<int64_t> first_skipped;
};

class TrainStep {
 public:
  // What goes on within a step is told to `enter`. The references must outlive the step. Fails as make_optimizer()
  // does.
  static Result<std::unique_ptr<TrainStep>> create(const TrainerConfig& config, Task& task, DistributedModel& model,
                                                   const RankGroup& group, std::function<void(Phase)> enter = {});

  // From now on a step of one micro-batch is recorded and replayed.
  void replay_with(std::unique_ptr<StepGraph> graph) { graph_ = std::move(graph); }

  // Called before a step changes the parameters, at the latest; with a graph before the step, and once more while the
  // step is captured.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  // Begins step `index` (from 0) of the run, on so many samples of this rank. Seeds the random numbers, and sets the
  // learning rates: rate_of gives the rate of a group from its lr; and the momentum, where one is given.
  void begin(int64_t index, int64_t samples, const std::function<double(double lr)>& rate_of,
             std::optional<double> momentum = std::nullopt);

  // Whether all samples of the step have been added.
  bool complete() const { return samples_left_ == 0; }

  // Forward and backward. A micro-batch counts by its samples, so that the gradient is the mean over the step's; only
  // the last one's is averaged over the ranks, after which the parameters are updated. More samples than the step has
  // left throw std::logic_error.
  void add(const Batch& batch);

  // The mean over the samples added so far, of this rank, on its device.
  const at::Tensor& loss() const { return loss_; }

  // Of the model for a sample, forward and backward, by what the first forward computed; 0 before it.
  double flops_per_sample() const { return flops_per_sample_.value_or(0); }

  // Waits for the device; throws c10::DistBackendError where a step takes longer than a collective may.
  StepReading read();

  // Steps of the whole run that were skipped, as of the last read().
  int64_t skipped_in_run() const { return nonfinite_.skipped_in_run(); }

  // While it lives, the model has the averaged weights; null without ema.
  MovingAverage* average() { return average_ ? &*average_ : nullptr; }

  // What a checkpoint holds of the step: the optimizer, and the scaler, the average and the count of skipped steps
  // where there are.
  std::vector<Stateful*> stateful();

 private:
  TrainStep(const TrainerConfig& config, Task& task, DistributedModel& model, const RankGroup& group,
            std::unique_ptr<Optimizer> optimizer, std::function<void(Phase)> enter);

  // The last micro-batch, and the update. The same work on the device every time, with everything that changes from
  // step to step in device tensors, so that a CUDA graph may record it; begin() and the moving average stay outside.
  void finish(const Batch& batch, double weight);
  void forward_backward(const Batch& batch, double weight);
  at::Tensor forward(const Batch& batch);
  at::Tensor scaled(const at::Tensor& loss, double weight) const;
  void keep_buffers();
  void update();
  void enter(Phase phase) const {
    if (enter_) enter_(phase);
  }

  const TrainerConfig& config_;
  Task& task_;
  DistributedModel& model_;
  const RankGroup& group_;
  std::function<void(Phase)> enter_;
  std::function<void()> before_update_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<GradScaler> scaler_;
  std::optional<MovingAverage> average_;
  std::unique_ptr<StepGraph> graph_;  // null: every step runs as it is

  int64_t samples_ = 0;
  int64_t samples_left_ = 0;
  StepContext context_;
  std::optional<double> flops_per_sample_;
  at::Tensor loss_;
  at::Tensor gradient_norm_;
  NonfiniteSteps nonfinite_;
  // Where no step is ever skipped: undefined, and nothing.
  at::Tensor found_inf_;  // float32 scalar on the device, of the last step: 1: it was skipped
  at::Tensor one_;        // float32 scalar on the device
  std::optional<BufferRollback> buffers_;
};

}  // namespace oarlock
