// The passes of a task besides its evaluation: when they are due, and running them.
#pragma once

#include <vector>

#include "trainer/engine/train_parts.h"

namespace oarlock {

class PassLoop {
 public:
  explicit PassLoop(const TrainParts& parts) : parts_(parts), passes_(parts.task.passes()) {}

  // By all ranks, after a step: those that are due there.
  Result<void> run_due(int64_t step);

  // By all ranks, where the run ends: those of the current weights that have not run at this step.
  Result<void> run_all(int64_t step);

  // By all ranks, when everything is saved: those of the best weights, which the model then keeps.
  Result<void> run_with_best_weights(int64_t step);

 private:
  Result<int64_t> take_best_weights(int64_t step);
  Result<void> run(const EvalPass& pass, int64_t step);

  TrainParts parts_;
  std::vector<EvalPass> passes_;
  int64_t ran_at_ = -1;  // the last step at which those that were due ran, in this process
};

}  // namespace oarlock
