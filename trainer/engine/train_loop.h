// The training loop: restores the state, then for each epoch steps, logs, saves and evaluates, and completes the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/distributed_sampler.h"
#include "recovery/regroup.h"
#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/engine/evaluator.h"
#include "trainer/engine/loss_report.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/run_state.h"
#include "trainer/optim/lr_scheduler.h"
#include "trainer/report/run_report.h"

namespace oarlock {

struct TrainSummary {
  TrainingPosition position;
  bool interrupted = false;            // stopped by a signal; the position is saved unless save_error is set
  std::string save_error;              // why the final save failed; empty on success
  bool was_complete = false;           // the restored checkpoint was that of the completed run
  std::string stopped_early;           // why the run ended before its configured length; empty if it did not
  Metrics metrics;                     // of the last evaluation
  int64_t samples = 0;                 // trained on by all ranks in this process
  double train_seconds = 0;            // spent in steps by this process
  std::string checkpoint;              // directory of the newest checkpoint; rank 0 only
  std::optional<BestEvaluation> best;  // rank 0 only
  bool parameters_equal = false;       // bitwise on all ranks
};

class TrainLoop {
 public:
  // Fails with kConfig if the batch does not fit the world size or the data.
  static Result<TrainLoop> create(const TrainParts& parts);

  // Called by all ranks together. Fails with kDataErr if the section "nonfinite" or weights that are not finite end the
  // run, and otherwise as the checkpointer does. Throws the exceptions of the task and the group.
  Result<TrainSummary> run();

  // ---- recovery without a checkpoint (docs/recovery-engine.md) ----
  // After run() or resume() has failed because a rank was lost, the caller calls leave() and forms a new group, whose
  // ranks all call join() and then resume(). If join() fails because another rank was lost, leave() and another group
  // follow. A rank that replaces a lost one begins with join().

  // Returns whether the state of a rank can take the place of a checkpoint.
  bool can_recover() const { return !is_final_; }

  // Undoes the changes of a step or an evaluation that did not complete, and releases everything that uses the group.
  void leave();

  // The number of steps that this rank has completed, or -1 if it has no consistent state, and a digest of the
  // parameters. Called after leave().
  RecoveryState recovery_state() const;

  // Whether this rank, which is rank 0 and has left its group, can save its state without the other ranks, so that a
  // resumed run ends with the bits of an undisturbed one.
  bool can_stop_alone() const;

  // Called after leave() if a signal stops the ranks before they have formed a new group: saves the state, and stops as
  // run() does after a signal. The group must not be connected. Only if can_stop_alone().
  Result<TrainSummary> stop_alone();

  // The number of ranks of the group that this loop was created for, or that it joined last.
  int world_size() const { return world_size_; }

  // Whether the data are distributed for this rank's position in the group.
  bool fits_group() const;

  // Called before join() unless fits_group(), when configuration and plan are those of the new group. The loop then
  // continues as a run that is resumed with this number of ranks. Fails as create().
  Result<void> resize();

  // Whether there is a state in memory. A new process has none until it has joined a group.
  bool has_state() const { return has_state_; }

  // Called by all ranks of the new group: transfers the state of the rank `donor` to them.
  Result<void> join(int donor);

  // Continues from the donor's state, as run() does.
  Result<TrainSummary> resume();

  // Sets the function that is called once run() or join() has restored the state, before the first step. `step` is the
  // step at which the run begins or resumes, and `target_steps` the one at which it ends.
  void on_start(std::function<void(int64_t step, int64_t target_steps)> call) { on_start_ = std::move(call); }

  // "NonFiniteLoss" or "NonFiniteGradient" if values that are not finite have ended the run; otherwise empty.
  const std::string& nonfinite_reason() const { return nonfinite_reason_; }

  // Whether the ranks' parameters were found to differ.
  bool diverged() const { return diverged_; }

 private:
  TrainLoop(const TrainParts& parts, DistributedSampler sampler);

  static Result<DistributedSampler> make_sampler(const TrainParts& parts);
  Result<void> check_length() const;
  void collect_stateful();
  Result<void> restore();
  void start_tracking();
  Result<void> catch_up();
  Result<void> train_epoch();
  void begin_epoch();
  Result<bool> train_step(DevicePrefetcher& feed);
  void schedule_step();
  void take_save_request();
  Batch next_batch(DevicePrefetcher& feed);
  void step_done(int64_t samples, SteadyTime begin, StepReport report);
  Result<void> after_step();
  Result<void> end_epoch();
  Result<void> complete();
  Result<void> finish();
  void summarize();

  Result<void> sync_loss();
  bool has_finite_weights() const;
  Result<void> check_weights();
  Result<void> end_by(const std::optional<NonfiniteStop>& stop);
  Result<void> check_parameters();
  Result<bool> evaluate();
  Result<void> write_history();
  Result<void> save(SaveUntil until);
  Result<void> stop();

  nlohmann::json host_state() const;
  Result<void> restore_host_state(const nlohmann::json& state);
  nlohmann::json state_for_joining() const;
  Result<void> take_state(const nlohmann::json& state);
  Result<void> receive_tensors(int donor);

  bool has_reached_length() const;
  bool is_finished() const { return has_reached_length() || evaluator_.has_stopped_early(); }
  int64_t steps_in_epoch(int64_t samples_done) const;
  int64_t samples_of_next_step() const;
  int64_t target_steps() const;
  double epochs_done() const;

  TrainParts parts_;
  DistributedSampler sampler_;
  int world_size_;
  StopPace pace_;
  LrScheduler scheduler_;
  Evaluator evaluator_;
  LossReport losses_;
  RunReport report_;
  std::unique_ptr<DataLoader> loader_;
  std::vector<Stateful*> stateful_;  // the parts of a checkpoint in addition to the model
  RunState state_;
  bool has_state_ = false;            // whether the model has the state of state_.position
  bool has_joined_ = false;           // run() has restored the state, or join() has succeeded once
  bool is_final_ = false;             // the model has the best weights instead of the current ones
  int64_t steps_before_join_ = 0;     // TrainStep::steps_completed() when the group was formed
  nlohmann::json before_evaluation_;  // host_state() while an evaluation is in progress, otherwise null
  bool diverged_ = false;
  std::string nonfinite_reason_;
  std::function<void(int64_t, int64_t)> on_start_;
  TrainSummary summary_;
};

}  // namespace oarlock
