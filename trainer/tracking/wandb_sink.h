// Writes run folders that `wandb sync` uploads to Weights & Biases.
#pragma once

#include <memory>

#include "trainer/tracking/sink.h"
#include "trainer/tracking/wandb_settings.h"

namespace oarlock {

// Each attempt writes its own folder, DIR/wandb/offline-run-<time>-<id>, with the same run id: an uploaded file
// must not change any more. The highest step of each metric is read from the folders of earlier attempts, and kept in
// wandb.json in the sink's folder, so that folders can be deleted after the upload.
std::unique_ptr<Sink> make_wandb_sink(const WandbSettings& settings, const SinkContext& context);

}  // namespace oarlock
