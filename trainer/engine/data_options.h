// How the configuration has batches made and brought to the device, in training and in evaluation.
#pragma once

#include "trainer/config/config.h"
#include "trainer/data/loader.h"
#include "trainer/device/batch_feed.h"

namespace oarlock {

// config.loader.threads is set.
LoaderOptions loader_options(const TrainerConfig& config, at::Device device, int64_t batch_size, uint64_t seed);

BatchFeedOptions feed_options(const TrainerConfig& config, int world_size);

}  // namespace oarlock
