// Writes the files that TensorBoard reads: one for each attempt, to which records are appended.
#pragma once

#include <memory>

#include "trainer/config/tracking.h"
#include "trainer/tracking/sink.h"

namespace oarlock {

// Creates tensorboard.dir, or "tensorboard" next to the sink's folder, with the first event. Points that the folder
// contains, up to the restart step, are not written again; the points of later steps are discarded by a session start.
std::unique_ptr<Sink> make_tensorboard_sink(const TensorboardConfig& config, const SinkContext& context);

// The folder of the event files.
std::filesystem::path tensorboard_folder(const TensorboardConfig& config, const std::filesystem::path& tracking_folder);

}  // namespace oarlock
