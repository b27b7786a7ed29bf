// restore -> for each epoch: step, log, checkpoint, evaluate -> finish. What a step is made of is in the parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/loader.h"
#include "trainer/data/sampler.h"
#include "trainer/device/batch_feed.h"
#include "trainer/engine/eval_loop.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/pass_loop.h"
#include "trainer/engine/run_report.h"
#include "trainer/engine/train_parts.h"
#include "trainer/optim/schedule.h"

namespace oarlock {

struct TrainSummary {
  Position position;
  int64_t target_steps = 0;
  bool interrupted = false;       // stopped by a signal, with everything saved
  std::string not_saved;          // but for this reason, where it is not empty
  bool was_complete = false;      // the checkpoint held the finished run already
  std::string stopped_early;      // why the run ended before its length; empty: it did not
  Metrics metrics;                // of the last evaluation
  int64_t samples = 0;            // trained on by all ranks in this process's life
  double train_seconds = 0;       // spent on steps
  std::string checkpoint;         // folder of the newest; rank 0
  bool parameters_equal = false;  // bitwise over the ranks
};

class TrainLoop {
 public:
  // kConfig: the batch does not fit the world size or the data.
  static Result<TrainLoop> create(const TrainParts& parts);

  // Called by all ranks. kDataErr when the section "nonfinite" ends the run; else what checkpoints fail with. Throws
  // what the task and the group throw.
  Result<TrainSummary> run();

  // Why the run was ended by the section "nonfinite": "NonFiniteLoss", "NonFiniteGradient"; else empty.
  const std::string& nonfinite() const { return nonfinite_; }

  // Whether the ranks' parameters were found to differ.
  bool diverged() const { return diverged_; }

 private:
  TrainLoop(const TrainParts& parts, DistributedSampler sampler);

  Result<void> restore();
  Result<void> catch_up();
  Result<void> train_epoch();
  void begin_epoch();
  bool train_step(BatchFeed& feed);
  Batch next_batch(BatchFeed& feed);
  void step_done(int64_t samples, SteadyTime begin, StepReport report);
  Result<void> after_step();
  Result<void> check_parameters();
  Result<void> look();
  void report_nonfinite_losses(double own_losses, StepReading& reading);
  Result<void> end_by(const std::optional<NonfiniteStop>& stop);
  void tell_device_memory();
  Result<void> end_epoch();
  Result<void> complete();
  Result<void> finish();
  Result<void> save(SaveUntil until);
  Result<void> stop();
  Result<bool> evaluate();
  bool length_reached() const;
  bool finished() const { return length_reached() || evals_.stopped(); }
  int64_t steps_in_epoch(int64_t samples_done) const;
  int64_t samples_of_next_step() const;
  ScheduleTime schedule_time() const;
  double rate(double lr) const;
  int64_t target_steps() const;
  double epochs_done() const;

  TrainParts parts_;
  DistributedSampler sampler_;
  StopPace pace_;
  EvalLoop evals_;
  RunReport report_;
  PassLoop passes_;
  std::unique_ptr<Loader> loader_;
  std::vector<Stateful*> stateful_;  // what a checkpoint holds besides the model
  Position position_;
  int64_t looked_at_step_ = -1;
  int64_t skipped_seen_ = 0;           // of StepReading
  int64_t nonfinite_losses_seen_ = 0;  // the same
  bool diverged_ = false;
  std::string nonfinite_;
  TrainSummary summary_;
};

}  // namespace oarlock
