// The evaluations of a run and the additional passes of its task: when they are due, running them, and early stopping.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "ddp/distributed_data_parallel_base.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/engine/checkpointer.h"
#include "trainer/engine/early_stopping.h"
#include "trainer/engine/evaluate.h"
#include "trainer/engine/profiler.h"
#include "trainer/engine/run_tracking.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"
#include "trainer/engine/train_step.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// The objects that the training loop and the evaluator share. They must outlive both.
struct TrainParts {
  const TrainerConfig& config;  // after apply_plan()
  const BatchPlan& plan;
  const ProcessGroup& group;
  Task& task;
  DistributedDataParallelBase& model;
  TrainStep& step;
  Checkpointer* checkpointer;  // null if there are no checkpoints
  Telemetry& telemetry;
  StopAgreement& stop;
  const Clock& clock;
  RunTracking* tracking = nullptr;   // null on other ranks than 0, and if nothing is tracked
  StepProfiler* profiler = nullptr;  // null if no steps are traced
};

// Returns Checkpointer::writer_check(), or an empty function without checkpoints.
WriterCheck writer_check(const TrainParts& parts);

// All ranks call the methods together, from the training thread. Evaluations and passes use the averaged weights if
// ema.evaluate is set. The ranks may agree to stop in between (TrainParts::stop): then a method returns without a
// result and without a change of state.
class Evaluator {
 public:
  explicit Evaluator(const TrainParts& parts);

  // Whether the configuration requires an evaluation there that has not run yet.
  bool is_due_after_step(int64_t step) const;
  bool is_due_after_epoch(int64_t epochs_done, int64_t step) const;

  // Evaluates the model and returns whether it is the best so far, so that it must be saved before the next step. Fails
  // with kConfig if the task does not return a metric that the configuration names, and with kIoErr and similar codes
  // if rows cannot be written.
  Result<bool> evaluate(int64_t step);

  // Whether this process has evaluated the model of this step.
  bool has_evaluated(int64_t step) const { return evaluated_.in_process == step; }
  const Metrics& metrics() const { return metrics_; }  // of the last evaluation
  bool has_stopped_early() const { return early_stopping_.stopped(); }
  std::string stop_reason() const { return early_stopping_.reason(); }

  // Whether a pass is due after this step and the run, as far as checkpoints record it, has not completed the passes of
  // this step.
  bool is_pass_due_after_step(int64_t step) const;

  // Runs the passes that are due after this step.
  Result<void> run_due_passes(int64_t step);
  // At the end of the run: runs the passes with the current weights that have not run at this step.
  Result<void> run_final_passes(int64_t step);
  // After the last save: runs the passes with the best weights, which the model then keeps.
  Result<void> run_best_passes(int64_t step);

  // Whether all passes that are due after this step have run, as far as checkpoints record it.
  bool has_run_passes(int64_t step) const { return passed_.in_run == step; }
  // Whether run_best_passes() replaces the weights.
  bool has_best_passes() const;

  // The evaluations and passes that this process has completed and the last metrics, which checkpoints do not contain,
  // for a rank that replaces a lost one. join() restores it.
  nlohmann::json state_for_joining() const;
  void join(const nlohmann::json& state);

  // The parts of the state that a checkpoint must contain. Valid as long as the evaluator is not moved.
  std::vector<Stateful*> stateful();

 private:
  // The last step after which something was completed, as a section of checkpoints.
  struct CompletedStep final : public Stateful {
    explicit CompletedStep(std::string_view name) : section_name(name) {}

    std::string_view section() const override { return section_name; }
    TensorMap tensors() const override { return {}; }
    nlohmann::json values() const override { return {{"step", in_run}}; }
    Result<void> restored(const nlohmann::json& values) override;
    Result<void> missing() override { return {}; }

    std::string_view section_name;
    int64_t in_run = -1;      // as far as checkpoints record it
    int64_t in_process = -1;  // of this process
  };

  Result<Evaluation> run(const EvalPass& pass, int64_t step);
  void track(const EvalPass& pass, const Evaluation& evaluation, int64_t step);
  Result<void> run_and_report(const EvalPass& pass, int64_t step);
  Result<int64_t> load_best_weights(int64_t step);

  TrainParts parts_;
  EarlyStopping early_stopping_;
  CompletedStep evaluated_{"evaluation"};
  Metrics metrics_;
  std::vector<EvalPass> passes_;
  CompletedStep passed_{"passes"};
  bool means_checked_ = false;  // by reject_means()
};

}  // namespace oarlock
