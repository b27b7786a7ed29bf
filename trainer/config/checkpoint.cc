#include "trainer/config/checkpoint.h"

namespace oarlock {
namespace {

void describe(BestConfig& config, Fields& fields) {
  fields.field("save", config.save, "save after an evaluation that was the best so far, and keep that checkpoint");
  fields.field("metric", config.metric, "by which metric of the evaluation; empty: the task's own choice");
  fields.choice<MetricMode>("mode", config.mode, {{"min", MetricMode::kMin}, {"max", MetricMode::kMax}},
                            "whether less or more of the metric is better");
  fields.only_where("mode", !config.metric.empty(), "belongs to best.metric; the task's own choice has its own mode");
}

}  // namespace

void describe(CheckpointConfig& config, Fields& fields) {
  fields.field("dir", config.dir, "folder of the checkpoints; empty: $OARLOCK_CHECKPOINT_DIR, else none are written");
  fields.field("every_steps", config.every_steps, at_least(0), "save after so many steps; 0: not by steps");
  fields.field("every_epochs", config.every_epochs, at_least(0),
               "save after so many epochs; 0: not by epochs. The end of the run is always saved");
  fields.field("keep", config.keep, at_least(0), "newest checkpoints that stay, besides the best; 0: all");
  fields.choice<CheckpointErrors>("on_error", config.on_error,
                                  {{"continue", CheckpointErrors::kContinue}, {"stop", CheckpointErrors::kStop}},
                                  "when a save fails, as on a full disk: train on and try again at the next one, or "
                                  "end the run. The end of the run must be saved in any case");
  fields.choice<AllDamaged>("on_all_damaged", config.on_all_damaged,
                            {{"stop", AllDamaged::kStop}, {"restart", AllDamaged::kRestart}},
                            "when there are checkpoints and every one is damaged: end the run and change nothing, or "
                            "set them aside and train from the beginning");
  fields.section(
      "best", [&config](Fields& best) { describe(config.best, best); }, "the checkpoint of the best evaluation");
}

}  // namespace oarlock
