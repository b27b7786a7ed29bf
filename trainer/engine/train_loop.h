// The training loop: restores the state, then for each epoch steps, logs, saves and evaluates, and completes the run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/data/sampler.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/engine/evaluator.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/train_parts.h"
#include "trainer/optim/lr_scheduler.h"
#include "trainer/report/run_report.h"

namespace oarlock {

struct TrainSummary {
  Position position;
  int64_t target_steps = 0;
  bool interrupted = false;       // stopped by a signal; the position is saved unless save_error is set
  std::string save_error;         // why the final save failed; empty on success
  bool was_complete = false;      // the restored checkpoint was that of the completed run
  std::string stopped_early;      // why the run ended before its configured length; empty if it did not
  Metrics metrics;                // of the last evaluation
  int64_t samples = 0;            // trained on by all ranks in this process
  double train_seconds = 0;       // spent in steps by this process
  std::string checkpoint;         // folder of the newest checkpoint; rank 0 only
  bool parameters_equal = false;  // bitwise on all ranks
};

class TrainLoop {
 public:
  // Fails with kConfig if the batch does not fit the world size or the data.
  static Result<TrainLoop> create(const TrainParts& parts);

  // Called by all ranks together. Fails with kDataErr if the section "nonfinite" ends the run, and otherwise as the
  // checkpointer does. Throws what the task and the group throw.
  Result<TrainSummary> run();

  // "NonFiniteLoss" or "NonFiniteGradient" if the section "nonfinite" has ended the run; otherwise empty.
  const std::string& nonfinite_reason() const { return nonfinite_reason_; }

  // Whether the ranks' parameters were found to differ.
  bool diverged() const { return diverged_; }

 private:
  TrainLoop(const TrainParts& parts, DistributedSampler sampler);

  Result<void> restore();
  void start_tracking();
  Result<void> catch_up();
  Result<void> train_epoch();
  void begin_epoch();
  bool train_step(DevicePrefetcher& feed);
  void schedule_step();
  Batch next_batch(DevicePrefetcher& feed);
  void step_done(int64_t samples, SteadyTime begin, StepReport report);
  Result<void> after_step();
  Result<void> end_epoch();
  Result<void> complete();
  Result<void> finish();

  Result<void> sync_loss();
  void track_step(double loss, const StepReading& reading);
  void report_nonfinite_losses(double own_losses, StepReading& reading);
  Result<void> end_by(const std::optional<NonfiniteStop>& stop);
  void report_device_memory();
  Result<void> check_parameters();
  Result<bool> evaluate();
  Result<void> save(SaveUntil until);
  Result<void> stop();

  bool has_reached_length() const;
  bool is_finished() const { return has_reached_length() || evaluator_.has_stopped_early(); }
  int64_t steps_in_epoch(int64_t samples_done) const;
  int64_t samples_of_next_step() const;
  int64_t target_steps() const;
  double epochs_done() const;

  TrainParts parts_;
  DistributedSampler sampler_;
  StopPace pace_;
  LrScheduler scheduler_;
  Evaluator evaluator_;
  RunReport report_;
  std::unique_ptr<DataLoader> loader_;
  std::vector<Stateful*> stateful_;  // the parts of a checkpoint in addition to the model
  Position position_;
  int64_t synced_step_ = -1;           // of the last sync_loss()
  int64_t skipped_seen_ = 0;           // StepReading::skipped, as of the last sync_loss()
  int64_t nonfinite_losses_seen_ = 0;  // the same of StepReading::nonfinite_losses
  bool diverged_ = false;
  std::string nonfinite_reason_;
  TrainSummary summary_;
  int64_t tracked_step_ = 0;                                 // of the last track_step(), or where this process began
  std::array<double, kPhaseNames.size()> tracked_phases_{};  // as of then
};

}  // namespace oarlock
