// The evaluations of a run: when they are due, and what follows from them: the best checkpoint, a lower learning rate,
// the end of the run.
#pragma once

#include <optional>
#include <vector>

#include "trainer/checkpoint/stateful.h"
#include "trainer/engine/early_stopping.h"
#include "trainer/engine/evaluator.h"
#include "trainer/engine/train_parts.h"
#include "trainer/optim/plateau.h"

namespace oarlock {

class EvalLoop final : public Stateful {
 public:
  explicit EvalLoop(const TrainParts& parts);

  // Whether the configuration wants an evaluation there and it has not been.
  bool due_after_step(int64_t step) const;
  bool due_after_epoch(int64_t epochs_done, int64_t step) const;

  // Whether this process has evaluated the model of this step.
  bool ran_at(int64_t step) const { return ran_at_ == step; }

  // By all ranks: evaluates, with the averaged weights where the section "ema" says so, and draws the conclusions. True
  // when the model is the best so far and must be saved before the next step. kConfig: a metric that is watched is not
  // among those that the task gives; kIoErr and the like: rows could not be written. False and no change of state when
  // the ranks have agreed to stop (parts.stop) before the end of the evaluation.
  Result<bool> run(int64_t step);

  const Metrics& metrics() const { return metrics_; }  // of the last
  bool stopped() const { return early_stopping_.stopped(); }
  std::string stop_reason() const { return early_stopping_.reason(); }
  double rate(double lr) const { return plateau_ ? plateau_->rate(lr) : lr; }

  // What a checkpoint holds of it, this object itself included.
  std::vector<Stateful*> stateful();

  std::string_view section() const override { return "evaluation"; }
  TensorMap tensors() const override { return {}; }
  nlohmann::json values() const override { return {{"step", last_step_}}; }
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  Result<void> observe();

  TrainParts parts_;
  EarlyStopping early_stopping_;
  std::optional<Plateau> plateau_;
  int64_t last_step_ = -1;  // of the last evaluation of the run, as far as checkpoints know
  int64_t ran_at_ = -1;
  Metrics metrics_;
};

}  // namespace oarlock
