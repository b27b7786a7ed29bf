// The sections "tracking" and "profile" of the configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

struct TensorboardConfig {
  bool enabled = false;
  std::string dir;  // empty: "tensorboard" in checkpoint.dir, or in the working directory without checkpoints
};

enum class WandbMode { kDefault, kOnline, kOffline, kDisabled };

// A key of "wandb" or "mlflow" that is empty has the value of the environment variable that the Python library of the
// service reads. A key that is set takes precedence over the variable, as an argument of wandb.init() does.
struct WandbConfig {
  bool enabled = false;
  WandbMode mode = WandbMode::kDefault;  // WANDB_MODE, otherwise offline
  std::string dir;                       // WANDB_DIR, otherwise checkpoint.dir, otherwise the working directory
  std::string project;                   // WANDB_PROJECT, otherwise the task
  std::string entity;                    // WANDB_ENTITY
  std::string name;                      // WANDB_NAME, otherwise the name of the run
  std::string run_id;                    // WANDB_RUN_ID, otherwise the same for all attempts of a job
  std::string group;                     // WANDB_RUN_GROUP
  std::string job_type;                  // WANDB_JOB_TYPE
  std::string notes;                     // WANDB_NOTES
  std::vector<std::string> tags;         // WANDB_TAGS
};

struct MlflowConfig {
  bool enabled = false;
  std::string uri;              // MLFLOW_TRACKING_URI
  std::string experiment;       // MLFLOW_EXPERIMENT_NAME, otherwise the task
  std::string run_name;         // empty: the name of the run
  std::string run_id;           // MLFLOW_RUN_ID: an existing run that is the parent of the attempts
  std::string token_file;       // a file with the bearer token; otherwise MLFLOW_TRACKING_TOKEN
  std::string ca_file;          // MLFLOW_TRACKING_SERVER_CERT_PATH, otherwise the authorities of the system
  double timeout_seconds = 30;  // of one request
};

// One section per sink of trainer/tracking.
struct TrackingConfig {
  std::string name;                    // of the run; empty: the job's name, otherwise the task
  std::string names;                   // of metrics, as MetricNames::parse() reads them
  int64_t histograms_every_steps = 0;  // of parameters and gradients; 0: never
  double finish_timeout_seconds = 30;  // for deliveries at the end of the run
  int64_t journal_limit_mib = 256;     // of undelivered events, for each sink with a server
  TensorboardConfig tensorboard;
  WandbConfig wandb;
  MlflowConfig mlflow;
};

// A trace of some steps. Each process counts its own steps, so that a resumed run is profiled again.
struct ProfileConfig {
  int64_t steps = 0;        // traced steps; 0: none
  int64_t first_step = 10;  // steps of this process before the first traced one
  bool all_ranks = false;   // otherwise rank 0 only
  bool shapes = false;
  bool memory = false;
  std::string dir;  // empty: plugins/profile in the directory of TensorBoard
};

void describe(TrackingConfig& config, Fields& fields);
void describe(ProfileConfig& config, Fields& fields);

}  // namespace oarlock
