#include "trainer/config/evaluation.h"

#include "trainer/config/limits.h"

namespace oarlock {
namespace {

constexpr double kMaxKept = 1e9;  // checkpoints

constexpr char kModeHelp[] = "whether lower or higher values of the metric are better";

Names<MetricMode> mode_names() { return {{"min", MetricMode::kMin}, {"max", MetricMode::kMax}}; }

// `name_key`: "metric" for the single metric of the section itself, "name" in the list of several.
void describe_metric(WatchedMetric& metric, Fields& fields, std::string_view name_key) {
  fields.field(name_key, metric.name,
               "one of the metrics of the evaluation; default: the metric by which the task compares models, with the "
               "mode of that metric");
  fields.choice<MetricMode>("mode", metric.mode, mode_names(), kModeHelp);
  fields.only_if("mode", !metric.name.empty(), "belongs to a named metric; the task's own metric has its own mode");
  fields.field("min_delta", metric.min_delta, at_least(0), "largest change that does not count as an improvement");
  fields.field("grace_period", metric.grace_period, from_to(0, kMaxSteps),
               "number of evaluations at the start that do not count against patience");
  fields.field("init_best_score", metric.init_best_score, any_number_or_infinity(),
               "value that the first improvement must surpass; default: the first evaluation is an improvement");
}

void describe_best(BestConfig& config, Fields& fields) {
  fields.field("save", config.save, "save after each evaluation that is the best so far, and keep that checkpoint");
  fields.field(
      "metric", config.metric,
      "metric of the evaluation that selects the best checkpoint; empty: the metric by which the task compares models");
  fields.choice<MetricMode>("mode", config.mode, mode_names(), kModeHelp);
  fields.only_if("mode", !config.metric.empty(), "belongs to best.metric; the task's own choice has its own mode");
}

}  // namespace

void describe(EvalConfig& config, Fields& fields) {
  fields.field("every_epochs", config.every_epochs, from_to(0, kMaxEpochs),
               "epochs between two evaluations; 0: disabled. The model is always evaluated at the end of the run");
  fields.field("every_steps", config.every_steps, from_to(0, kMaxSteps),
               "optimizer steps between two evaluations; 0: disabled");
  fields.field("batch_size", config.batch_size, from_to(0, kMaxBatchSize),
               "samples per evaluation step of one rank; 0: batch.size");
  fields.field("rows_file", config.rows_file,
               "CSV file to which rank 0 writes the per-sample results of the newest evaluation: the column id and the "
               "columns of the task. Empty: none");
  fields.scope("rows_file", Scope::kPresence);
}

void describe(EarlyStoppingConfig& config, Fields& fields) {
  fields.field("patience", config.patience, from_to(1, kMaxSteps),
               "evaluations without improvement after which the run ends; default: never");
  if (config.metrics.empty()) config.metrics.emplace_back();
  WatchedMetric single = config.metrics.front();
  describe_metric(single, fields, "metric");
  std::vector<WatchedMetric> several;
  fields.list<WatchedMetric>(
      "metrics", several, [](WatchedMetric& metric, Fields& inner) { describe_metric(metric, inner, "name"); },
      "replaces metric: several metrics, each with its own settings");
  const bool is_list = !several.empty();
  for (const char* key : {"metric", "mode", "min_delta", "grace_period", "init_best_score"}) {
    fields.only_if(key, !is_list, "belongs to a single metric; each item of the list 'metrics' has its own");
  }
  config.metrics = is_list ? several : std::vector<WatchedMetric>{single};
  fields.choice<Aggregate>(
      "aggregate", config.aggregate, {{"all", Aggregate::kAll}, {"any", Aggregate::kAny}},
      "with several metrics: whether all of them or at least one must improve for the model to count as improved");
}

void describe(CheckpointConfig& config, Fields& fields) {
  fields.field("dir", config.dir,
               "directory of the checkpoints; empty: $OARLOCK_CHECKPOINT_DIR, or no checkpoints if that is not set");
  fields.scope("dir", Scope::kPresence);
  fields.field("every_steps", config.every_steps, from_to(0, kMaxSteps),
               "optimizer steps between two saves; 0: disabled");
  fields.field("every_epochs", config.every_epochs, from_to(0, kMaxEpochs),
               "epochs between two saves; 0: disabled. A checkpoint is always saved at the end of the run");
  fields.field("keep", config.keep, from_to(0, kMaxKept),
               "number of newest checkpoints that are kept in addition to the best; 0: all");
  fields.choice<CheckpointErrors>(
      "on_error", config.on_error, {{"continue", CheckpointErrors::kContinue}, {"stop", CheckpointErrors::kStop}},
      "when a save fails, for example because the disk is full: continue training and try again at the next save, or "
      "end the run. If the save at the end of the run fails, the run fails with either value");
  fields.choice<AllDamaged>("on_all_damaged", config.on_all_damaged,
                            {{"stop", AllDamaged::kStop}, {"restart", AllDamaged::kRestart}},
                            "when checkpoints exist and all of them are damaged: end the run and change nothing, or "
                            "set them aside and train from the beginning");
  fields.section(
      "best", [&config](Fields& best) { describe_best(config.best, best); }, "the checkpoint of the best evaluation");
}

void describe(ReportConfig& config, Fields& fields) {
  fields.field("history", config.history,
               "JSON file that rank 0 replaces after every evaluation, with one list per column: epoch, step, "
               "train_loss (the mean since the previous evaluation), learning_rate, seconds, and val_NAME for each "
               "metric; relative to checkpoint.dir if that is set. A resumed run continues the lists. Empty: none");
  fields.field("curves", config.curves, "SVG file that plots the columns of the history over the epochs. Empty: none");
  for (const char* key : {"history", "curves"}) fields.scope(key, Scope::kPresence);
}

}  // namespace oarlock
