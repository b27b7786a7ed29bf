// The state of a run between two steps, in addition to tensors and the parts that checkpoints contain. It is equal on
// all ranks: a rank that joins a group receives it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "trainer/engine/checkpointer.h"

namespace oarlock {

// The work that remains before the next step. The values of an interrupted process are in checkpoints (Evaluator), so
// this is for a recovery within a process.
enum class Due {
  kNothing,
  kCatchUp,    // TrainLoop::catch_up(), after a restore
  kAfterStep,  // TrainLoop::after_step()
  kEpochEnd,   // the evaluation of the epoch
  kEpochSave   // the save after the epoch
};

// The last steps whose results were reported; -1: none.
struct ReportedSteps {
  int64_t synced = -1;  // by LossReport::sync()
  int64_t shown = -1;   // by LossReport::sync() or show()
};

struct RunState {
  TrainingPosition position;
  int64_t target_steps = 0;   // at which the run ends
  bool was_complete = false;  // the restored checkpoint was that of the completed run
  Due due = Due::kCatchUp;
  bool is_best = false;      // the model must be saved, because the last evaluation was the best
  bool save_due = false;     // the model must be saved, because an earlier save was lost, or on request
  bool completed = false;    // TrainLoop::complete() has returned
  bool has_stepped = false;  // a rank has completed a step in this process or in that of the donor
  ReportedSteps reported;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainingPosition, step, epoch, epoch_samples)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReportedSteps, synced, shown)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunState, position, target_steps, was_complete, due, is_best, save_due, completed,
                                   has_stepped, reported)

}  // namespace oarlock
