// One optimizer step: forward and backward of each micro-batch, then unscale, clip, update, and the moving average; and
// the random streams of a run. Only read() waits for the device.
//
// All ranks handle non-finite values together and on the device. Gradients are averaged over the ranks before they are
// checked, so every rank gets the same result. If found_inf is 1, the optimizer's kernels and the gradient compression
// change nothing, and the model's buffers are restored. With nonfinite.loss: skip, a rank whose loss is not finite
// multiplies its gradient by NaN, which reaches the other ranks through the average, without an additional collective.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/buffer_rollback.h"
#include "ddp/distributed_data_parallel_base.h"
#include "trainer/config/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/device/step_graph.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/task.h"
#include "trainer/optim/amp.h"
#include "trainer/optim/moving_average.h"
#include "trainer/optim/optimizer.h"
#include "trainer/telemetry/progress.h"

namespace oarlock {

// ---- Random streams ------------------------------------------------------------------------------------------------
// All random streams of a run are derived from its seed. The numbers of a step depend on (seed, rank, step) only, so a
// resumed run draws the same numbers as one that was not interrupted, and no generator state is saved
// (ddp/seed_step.h).

// Seeds LibTorch's default generators before the model is built, identically on all ranks.
void seed_model(uint64_t seed);

// Returns the seed of the data loader: augmentation depends on the epoch and the sample, not on the rank.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

// ---- Step ----------------------------------------------------------------------------------------------------------

class TrainStep {
 public:
  // The step reports its phases to `enter`. The references must outlive the step. Fails as make_optimizer() does.
  static Result<std::unique_ptr<TrainStep>> create(const TrainerConfig& config, Task& task,
                                                   DistributedDataParallelBase& model, const ProcessGroup& group,
                                                   std::function<void(Phase)> enter = {});

  // Records the following steps of one micro-batch and replays them.
  void replay_with(std::unique_ptr<StepGraph> graph) { graph_ = std::move(graph); }

  // `call` is called before each step changes the parameters; with a graph, before the step, and once more while the
  // step is captured.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  // `call` is called on each step that is not recorded, when the gradients are averaged over the ranks and unscaled,
  // and before they are clipped.
  void on_gradients(std::function<void()> call) { on_gradients_ = std::move(call); }

  // ---- recovery without a checkpoint (docs/recovery-engine.md) ----

  // From now on a step that did not complete can be undone: each step keeps a copy of the model's buffers, and makes
  // them equal on all ranks before the update. On a CUDA device, each step then waits for the averaged gradients, so
  // that a collective that failed is detected before the update. Must precede the first step.
  void enable_undo();

  bool can_undo() const { return can_undo_; }

  // Returns why a step cannot be undone or its state cannot be sent to another rank; empty if both are possible.
  std::string recovery_obstacle() const;

  // Called when a collective of a step has failed: restores the values that the model's buffers and the loss had after
  // the last completed step. Parameters, optimizer, scaler and moving average still have these values, because they
  // change only after the last collective of a step. Does nothing if no step is in progress. Called also when the ranks
  // stop between two micro-batches, which does not require enable_undo().
  void undo();

  // Called when this rank has received the state of another one, which has completed a step that this rank has not:
  // loss() is undefined until the next step.
  void forget_loss();

  // Called when the configuration's learning rates have changed, because the number of ranks has.
  Result<void> update_learning_rates();

  // Number of steps that this object has completed.
  int64_t steps_completed() const { return steps_completed_; }

  // The optimizer, to set the learning rates and the momentum of the next step.
  Optimizer& optimizer() { return *optimizer_; }

  // Begins step `index` (from 0) of the run, on `samples` samples of this rank. Seeds the random numbers.
  void begin(int64_t index, int64_t samples);

  // Whether all samples of the step have been added.
  bool complete() const { return samples_left_ == 0; }

  // Runs forward and backward of a micro-batch, weighted by its samples, so that the gradient is the mean over the
  // step. With the last micro-batch, averages the gradient over the ranks and updates the parameters. Throws
  // std::logic_error if the batch has more samples than the step has left.
  void add(const Batch& batch);

  // This rank's mean over the samples added so far, on its device.
  const at::Tensor& loss() const { return loss_; }

  // Operations of the model per sample, forward and backward, as counted in the first forward pass; 0 before it.
  double flops_per_sample() const { return flops_per_sample_.value_or(0); }

  // Waits for the device. Throws c10::DistBackendError if a step takes longer than the timeout of a collective.
  StepReading read();

  // Skipped steps of the whole run, as of the last read().
  int64_t skipped_in_run() const { return nonfinite_.skipped_in_run(); }

  // The moving average of the weights; null without ema.
  MovingAverage* average() { return average_ ? &*average_ : nullptr; }

  // The parts of a checkpoint: the optimizer, and the scaler, the average and the count of skipped steps if they exist.
  std::vector<Stateful*> stateful();

 private:
  TrainStep(const TrainerConfig& config, Task& task, DistributedDataParallelBase& model, const ProcessGroup& group,
            std::unique_ptr<Optimizer> optimizer, std::function<void(Phase)> enter);

  // The last micro-batch and the update. A CUDA graph can record it: the work on the device is always the same, and
  // everything that changes from step to step is in device tensors. begin() and the moving average are not recorded.
  void finish(const Batch& batch, double weight);
  void forward_backward(const Batch& batch, double weight);
  at::Tensor forward(const Batch& batch);
  at::Tensor scaled(const at::Tensor& loss, double weight) const;
  void keep_buffers();
  void prepare_update();
  void update();
  void enter(Phase phase) const {
    if (enter_) enter_(phase);
  }

  const TrainerConfig& config_;
  Task& task_;
  DistributedDataParallelBase& model_;
  const ProcessGroup& group_;
  std::function<void(Phase)> enter_;
  std::function<void()> before_update_;
  std::function<void()> on_gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<AmpGradScaler> scaler_;
  std::optional<MovingAverage> average_;
  std::unique_ptr<StepGraph> graph_;  // null if steps are not recorded

  int64_t samples_ = 0;
  int64_t samples_left_ = 0;
  StepContext context_;
  std::optional<double> flops_per_sample_;
  at::Tensor loss_;
  at::Tensor gradient_norm_;
  NonfiniteSteps nonfinite_;
  // Undefined if no step can be skipped.
  at::Tensor found_inf_;                   // float32 scalar on the device, 1 if the last step was skipped
  at::Tensor one_;                         // float32 scalar on the device
  std::optional<BufferRollback> buffers_;  // none if no step can be skipped or undone

  bool can_undo_ = false;
  bool buffers_kept_ = false;  // in the step in progress
  int64_t steps_completed_ = 0;
  at::Tensor completed_loss_;  // of the last completed step
  StepContext completed_context_;
};

// ---- Options of the batches that steps and evaluations use ----------------------------------------------------------

// Options of the data loader, for training and evaluation. Requires that config.loader.threads is set.
DataLoaderOptions loader_options(const TrainerConfig& config, at::Device device, int64_t batch_size, uint64_t seed);

// Options of the copies to the device.
PrefetchOptions feed_options(const TrainerConfig& config, int world_size);

}  // namespace oarlock
