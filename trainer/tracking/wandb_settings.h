// What a run of Weights & Biases is called and where its folder is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/variables.h"

namespace oarlock {

// The configuration after the variables WANDB_* were applied. Members that are empty depend on the run.
struct WandbSettings {
  WandbMode mode = WandbMode::kOffline;  // never kDefault
  std::filesystem::path dir;
  std::string project;
  std::string entity;
  std::string name;
  std::string run_id;
  std::string group;
  std::string job_type;
  std::string notes;
  std::vector<std::string> tags;
};

// Fails with kConfig if WANDB_MODE or WANDB_RUN_ID is invalid.
Result<WandbSettings> resolve_wandb_settings(const WandbConfig& config, const TrackingVariables& variables);

// Whether the section and the variables request the sink at all.
inline bool is_wandb_enabled(const WandbConfig& config, const WandbSettings& settings) {
  return config.enabled && settings.mode != WandbMode::kDisabled;
}

// Whether W&B accepts the id of a run: letters, digits, '_', '-' and '.'.
bool is_wandb_id(const std::string& id);

}  // namespace oarlock
