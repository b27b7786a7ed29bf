#include "trainer/config/tracking_servers.h"

namespace oarlock {

void describe(WandbConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "write a run folder for Weights & Biases, which 'wandb sync' uploads");
  fields.choice("mode", config.mode,
                {{"default", WandbMode::kDefault},
                 {"online", WandbMode::kOnline},
                 {"offline", WandbMode::kOffline},
                 {"disabled", WandbMode::kDisabled}},
                "'default' is WANDB_MODE, or offline without it. The folder is always written offline: 'online' is "
                "accepted with a warning that names the command for the upload");
  fields.field("dir", config.dir,
               "folder in which the folder 'wandb' is created. Empty: WANDB_DIR, otherwise checkpoint.dir, otherwise "
               "the working directory");
  fields.field("project", config.project, "empty: WANDB_PROJECT, otherwise the task");
  fields.field("entity", config.entity,
               "user or team that owns the project. Empty: WANDB_ENTITY, otherwise the default of the account that "
               "uploads the run");
  fields.field("name", config.name, "of the run. Empty: WANDB_NAME, otherwise tracking.name");
  fields.field(
      "run_id", config.run_id, {.max_length = 128, .pattern = "^[A-Za-z0-9_.-]*$"},
      "letters, digits, '_', '-' and '.'. Empty: WANDB_RUN_ID, otherwise one that all attempts of a job share");
  fields.field("group", config.group, "empty: WANDB_RUN_GROUP");
  fields.field("job_type", config.job_type, "empty: WANDB_JOB_TYPE");
  fields.field("notes", config.notes, "empty: WANDB_NOTES");
  fields.field("tags", config.tags, "empty: WANDB_TAGS, a list separated by commas");
}

void describe(MlflowConfig& config, Fields& fields) {
  fields.field("enabled", config.enabled, "report the run to an MLflow tracking server");
  fields.field("uri", config.uri,
               "of the server: 'https://mlflow.example.com'. Empty: MLFLOW_TRACKING_URI. User name and password are "
               "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD");
  fields.field("experiment", config.experiment,
               "created if it does not exist. Empty: MLFLOW_EXPERIMENT_NAME, otherwise the task");
  fields.field("run_name", config.run_name, "of the run, whose nested runs are the attempts. Empty: tracking.name");
  fields.field("run_id", config.run_id, {.max_length = 64, .pattern = "^[A-Za-z0-9_-]*$"},
               "an existing run that is used instead of a new one. Empty: MLFLOW_RUN_ID");
  fields.field("token_file", config.token_file,
               "file with a bearer token, which is read again when it changes. Empty: MLFLOW_TRACKING_TOKEN");
  fields.field("ca_file", config.ca_file,
               "PEM file of the only certificate authorities that are trusted. Empty: "
               "MLFLOW_TRACKING_SERVER_CERT_PATH, otherwise those of the system. MLFLOW_TRACKING_INSECURE_TLS=true "
               "disables the verification");
  fields.field("timeout_seconds", config.timeout_seconds, above(0), "longest duration of one request");
}

}  // namespace oarlock
