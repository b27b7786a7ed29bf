// Writes run folders that `wandb sync` uploads to Weights & Biases.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/tracking.h"
#include "trainer/tracking/sink.h"
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

// A value of a histogram for wandb: {"_type":"histogram","bins":[...],"values":[...]} with at most `max_bins` bins.
std::string wandb_histogram(const Histogram& histogram, size_t max_bins = 512);

// Each attempt writes its own folder, DIR/wandb/offline-run-<time>-<id>, with the same run id: an uploaded file
// must not change any more. The highest step of each metric is read from the folders of earlier attempts, and kept in
// wandb.json in the sink's folder, so that folders can be deleted after the upload.
std::unique_ptr<Sink> make_wandb_sink(const WandbSettings& settings, const SinkContext& context);

}  // namespace oarlock
