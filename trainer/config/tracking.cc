#include "trainer/config/tracking.h"

#include "trainer/config/limits.h"
#include "trainer/config/metric_names.h"

namespace oarlock {
namespace {

constexpr double kMaxJournalMib = 1e6;
constexpr double kMaxTracedSteps = 10000;  // the trace is in memory until it is written

void describe_tensorboard(TensorboardConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "write event files");
  fields.field("dir", config.dir,
               "directory of the event files of this run. Empty: 'tensorboard' in checkpoint.dir, or in the working "
               "directory without checkpoints");
}

void describe_wandb(WandbConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "write a run directory for Weights & Biases, which 'wandb sync' uploads");
  fields.choice("mode", config.mode,
                {{"default", WandbMode::kDefault},
                 {"online", WandbMode::kOnline},
                 {"offline", WandbMode::kOffline},
                 {"disabled", WandbMode::kDisabled}},
                "'default' is WANDB_MODE, or offline without it. The directory is always written offline: 'online' is "
                "accepted with a warning that names the command for the upload");
  fields.field(
      "dir", config.dir,
      "directory in which the directory 'wandb' is created. Empty: WANDB_DIR, otherwise checkpoint.dir, otherwise "
      "the working directory");
  fields.field("project", config.project, "project of the run. Empty: WANDB_PROJECT, otherwise the task");
  fields.field("entity", config.entity,
               "user or team that owns the project. Empty: WANDB_ENTITY, otherwise the default of the account that "
               "uploads the run");
  fields.field("name", config.name, "name of the run. Empty: WANDB_NAME, otherwise tracking.name");
  fields.field("run_id", config.run_id, {.max_length = 128, .pattern = "^[A-Za-z0-9_.-]*$"},
               "ID of the run: letters, digits, '_', '-' and '.'. Empty: WANDB_RUN_ID, otherwise an ID that all "
               "attempts of a job share");
  fields.field("group", config.group, "group of the run. Empty: WANDB_RUN_GROUP");
  fields.field("job_type", config.job_type, "job type of the run. Empty: WANDB_JOB_TYPE");
  fields.field("notes", config.notes, "notes on the run. Empty: WANDB_NOTES");
  fields.field("tags", config.tags, "tags of the run. Empty: WANDB_TAGS, a list separated by commas");
}

void describe_mlflow(MlflowConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "report the run to an MLflow tracking server");
  fields.field("uri", config.uri,
               "URI of the server, such as 'https://mlflow.example.com'. Empty: MLFLOW_TRACKING_URI. User name and "
               "password are read from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD");
  fields.field("experiment", config.experiment,
               "name of the experiment, which is created if it does not exist. Empty: MLFLOW_EXPERIMENT_NAME, "
               "otherwise the task");
  fields.field("run_name", config.run_name,
               "name of the run; each attempt is a nested run of it. Empty: tracking.name");
  fields.field("run_id", config.run_id, {.max_length = 64, .pattern = "^[A-Za-z0-9_-]*$"},
               "ID of an existing run that is used instead of a new one. Empty: MLFLOW_RUN_ID");
  fields.field("token_file", config.token_file,
               "file with a bearer token, which is read again when it changes. Empty: MLFLOW_TRACKING_TOKEN");
  fields.field("ca_file", config.ca_file,
               "PEM file of the only certificate authorities that are trusted. Empty: "
               "MLFLOW_TRACKING_SERVER_CERT_PATH, otherwise those of the system. MLFLOW_TRACKING_INSECURE_TLS=true "
               "disables the verification");
  fields.field("timeout_seconds", config.timeout_seconds, above_to(0, kMaxSeconds),
               "timeout of one request in seconds");
}

}  // namespace

void describe(TrackingConfig& config, Fields& fields) {
  fields.field("name", config.name, "name of the run; empty: the name of the TrainingJob, otherwise the task");
  fields.raw_object("names", config.names,
                    "replacements for the names of metrics, texts, images and histograms, such as '{loss: train/loss, "
                    "eval/: val/}'. A key that ends with '/' replaces this prefix of names");
  if (const Result<MetricNames> names = MetricNames::parse(config.names); !names)
    fields.problem("names", names.error().message);
  fields.field("histograms_every_steps", config.histograms_every_steps, from_to(0, kMaxSteps),
               "steps between two histograms of every parameter and its gradient (averaged over the ranks, before "
               "clipping); 0: none");
  fields.field(
      "finish_timeout_seconds", config.finish_timeout_seconds, from_to(0, kMaxSeconds),
      "time in seconds that a run waits at its end for the delivery of its last points; after a signal or a failure, "
      "at most 5 s. A sink with a server stores undelivered points in checkpoint.dir for the next attempt");
  fields.field("journal_limit_mib", config.journal_limit_mib, from_to(1, kMaxJournalMib),
               "maximum size in MiB of the undelivered points that are kept for each sink with a server (without "
               "checkpoint.dir, they are kept in memory, at most 16 MiB); later points are dropped, with a warning");
  fields.section(
      "tensorboard", [&config](Fields& inner) { describe_tensorboard(config.tensorboard, inner); },
      "event files for TensorBoard");
  fields.section(
      "wandb", [&config](Fields& inner) { describe_wandb(config.wandb, inner); },
      "run directories for Weights & Biases, which 'wandb sync' uploads");
  fields.section(
      "mlflow", [&config](Fields& inner) { describe_mlflow(config.mlflow, inner); }, "an MLflow tracking server");
}

void describe(ProfileConfig& config, Fields& fields) {
  fields.field("steps", config.steps, from_to(0, kMaxTracedSteps),
               "number of consecutive training steps to trace (Chrome trace format, for TensorBoard's profiler plugin "
               "and Perfetto); 0: none");
  fields.field(
      "first_step", config.first_step, from_to(0, kMaxSteps),
      "number of steps before the first traced one, counted from the start of the process, also in a resumed run");
  fields.field("all_ranks", config.all_ranks, "write a trace of each rank, instead of rank 0 only");
  fields.field("shapes", config.shapes, "record the shapes of the operators' inputs");
  fields.field("memory", config.memory, "record memory allocations");
  fields.field("dir", config.dir,
               "directory of the traces. Empty: 'plugins/profile' in the directory of TensorBoard's event files");
}

}  // namespace oarlock
