// The sections "wandb" and "mlflow" of "tracking". A key that is empty has the value of the variable of the environment
// that the Python library of the service reads; a key that is set takes precedence over the variable, as an argument of
// wandb.init() does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/fields/fields.h"

namespace oarlock {

enum class WandbMode { kDefault, kOnline, kOffline, kDisabled };

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

void describe(WandbConfig& config, Fields& fields);
void describe(MlflowConfig& config, Fields& fields);

}  // namespace oarlock
