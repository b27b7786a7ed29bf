// Options of the data loader and of the copies to the device, for training and evaluation.
#pragma once

#include "trainer/config/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"

namespace oarlock {

// Requires that config.loader.threads is set.
DataLoaderOptions loader_options(const TrainerConfig& config, at::Device device, int64_t batch_size, uint64_t seed);

PrefetchOptions feed_options(const TrainerConfig& config, int world_size);

}  // namespace oarlock
