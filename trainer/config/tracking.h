// The sections of the configuration about what a run reports: "tracking" and "profile".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/fields/fields.h"
#include "trainer/config/tracking_servers.h"

namespace oarlock {

struct TensorboardConfig {
  bool enabled = false;
  std::string dir;  // empty: "tensorboard" in checkpoint.dir, or in the working directory without checkpoints
};

// One section per sink of trainer/tracking.
struct TrackingConfig {
  std::string name;                    // of the run; empty: the job's name, otherwise the task
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
  std::string dir;  // empty: plugins/profile in the folder of TensorBoard
};

void describe(TrackingConfig& config, Fields& fields);
void describe(ProfileConfig& config, Fields& fields);

}  // namespace oarlock
