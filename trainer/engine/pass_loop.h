// The passes of a task besides its evaluation: when they are due, and running them. A stop on which the ranks agree
// (parts.stop) interrupts them between batches.
#pragma once

#include <vector>

#include "trainer/checkpoint/stateful.h"
#include "trainer/engine/train_parts.h"

namespace oarlock {

class PassLoop final : public Stateful {
 public:
  explicit PassLoop(const TrainParts& parts) : parts_(parts), passes_(parts.task.passes()) {}

  // Whether a pass is due at this step and the run, as far as checkpoints know, has not completed the passes there.
  bool due_after_step(int64_t step) const;

  // By all ranks, after a step: those that are due there.
  Result<void> run_due(int64_t step);

  // By all ranks, where the run ends: those of the current weights that have not run at this step.
  Result<void> run_all(int64_t step);

  // By all ranks, when everything is saved: those of the best weights, which the model then keeps.
  Result<void> run_with_best_weights(int64_t step);

  // Whether a checkpoint must hold this object's state: a pass runs during training.
  bool has_state() const;

  std::string_view section() const override { return "passes"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override { return {{"step", last_step_}}; }
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  Result<int64_t> take_best_weights(int64_t step);
  Result<void> run(const EvalPass& pass, int64_t step);

  TrainParts parts_;
  std::vector<EvalPass> passes_;
  int64_t last_step_ = -1;  // the last step after which those that were due were completed
  int64_t ran_at_ = -1;     // the same, in this process
};

}  // namespace oarlock
