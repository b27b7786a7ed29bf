#include "trainer/config/tracking.h"

namespace oarlock {
namespace {

void describe_tensorboard(TensorboardConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "write event files");
  fields.field("dir", config.dir,
               "folder of the event files of this run. Empty: 'tensorboard' in checkpoint.dir, or in the working "
               "directory without checkpoints");
}

}  // namespace

void describe(TrackingConfig& config, Fields& fields) {
  fields.field("name", config.name, "name of the run; empty: the name of the TrainingJob, otherwise the task");
  fields.field("histograms_every_steps", config.histograms_every_steps, at_least(0),
               "steps between two histograms of every parameter and its gradient (averaged over the ranks, before "
               "clipping); 0: none");
  fields.field("finish_timeout_seconds", config.finish_timeout_seconds, at_least(0),
               "how long the end of a run waits for the delivery of its last points; at most 5 s after a signal or a "
               "failure. A sink with a server keeps undelivered points in checkpoint.dir for the next attempt");
  fields.field("journal_limit_mib", config.journal_limit_mib, at_least(1),
               "MiB of undelivered points that are kept for each sink with a server; later points are dropped, with a "
               "warning");
  fields.section(
      "tensorboard", [&config](Fields& inner) { describe_tensorboard(config.tensorboard, inner); },
      "event files for TensorBoard");
  fields.section(
      "wandb", [&config](Fields& inner) { describe(config.wandb, inner); },
      "run folders for Weights & Biases, which 'wandb sync' uploads");
  fields.section("mlflow", [&config](Fields& inner) { describe(config.mlflow, inner); }, "an MLflow tracking server");
}

void describe(ProfileConfig& config, Fields& fields) {
  fields.field("steps", config.steps, at_least(0),
               "consecutive training steps of which a trace is written (Chrome trace format, for TensorBoard's "
               "profiler plugin and Perfetto); 0: none");
  fields.field("first_step", config.first_step, at_least(0),
               "steps of this process before the first traced one. A resumed run counts from its start");
  fields.field("all_ranks", config.all_ranks, "one trace for each rank, instead of rank 0 only");
  fields.field("shapes", config.shapes, "record the shapes of the operators' inputs");
  fields.field("memory", config.memory, "record allocations");
  fields.field("dir", config.dir,
               "folder of the traces. Empty: 'plugins/profile' in the folder of TensorBoard's event files");
}

}  // namespace oarlock
