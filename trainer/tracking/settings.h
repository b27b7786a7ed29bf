// Settings of the sinks: the values of the configuration after the variables of the environment were applied.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/config/tracking.h"

namespace oarlock {

// Returns the value of a variable of the environment, or nullopt if it is not set.
using TrackingVariables = std::function<std::optional<std::string>(std::string_view name)>;

// The names and the directory of a run of Weights & Biases: the configuration after the variables WANDB_* were applied.
// The sink derives empty members from the run.
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

// Checks the settings of the enabled sinks before a run, for `oarlock-trainer --check`: modes, names, the address of
// the server, its credentials and certificates, and the directories. Creates no directory and opens no connection. For
// a run in pods, whose environment and files are not known here, only the configured values are checked. Fails with
// kConfig and a message of one line.
Result<void> check_tracking(const TrackingConfig& config, const std::filesystem::path& checkpoint_dir,
                            const TrackingVariables& variables, bool runs_in_pods);

}  // namespace oarlock
