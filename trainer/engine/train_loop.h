// restore -> for each epoch: step, log, checkpoint, evaluate -> finish. What a step is made of is in the parts.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/config.h"
#include "trainer/data/loader.h"
#include "trainer/data/sampler.h"
#include "trainer/engine/checkpointer.h"
#include "trainer/engine/evaluator.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

// Everything that the loop works with; all of it outlives the loop.
struct TrainParts {
  const TrainerConfig& config;
  const RankGroup& group;
  Task& task;
  DistributedModel& model;
  Optimizer& optimizer;
  Checkpointer* checkpointer;  // null: no checkpoints
  Telemetry& telemetry;
  const StopFlag& stop;
  const Clock& clock;
};

struct TrainSummary {
  Position position;
  int64_t target_steps = 0;
  bool interrupted = false;       // stopped by a signal, with everything saved
  bool was_complete = false;      // the checkpoint held the finished run already
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

  // Called by all ranks. kDataErr when the loss is not finite; else what checkpoints fail with. Throws what the task
  // and the group throw.
  Result<TrainSummary> run();

  bool loss_is_finite() const { return loss_is_finite_; }

 private:
  TrainLoop(const TrainParts& parts, DistributedSampler sampler, int64_t batch_size)
      : parts_(parts), sampler_(sampler), batch_size_(batch_size), stop_(parts.stop, parts.group) {}

  Result<void> restore();
  Result<void> train_epoch();
  Result<void> train_step(const Batch& batch, SteadyTime begin);
  Result<void> log_loss();
  Result<void> end_epoch();
  Result<void> finish();
  Result<void> save();
  Result<void> run_evaluation();
  bool finished() const;
  int64_t steps_in_epoch(int64_t samples_done) const;
  int64_t target_steps() const;

  TrainParts parts_;
  DistributedSampler sampler_;
  int64_t batch_size_;  // of this rank
  StopAgreement stop_;
  Position position_;
  at::Tensor loss_;                 // of the last step, this rank's
  int64_t loss_checked_step_ = -1;  // up to here the loss is known to be finite
  bool loss_is_finite_ = true;
  int64_t evaluated_step_ = -1;
  TrainSummary summary_;
};

}  // namespace oarlock
