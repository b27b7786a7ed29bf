// Parts that the training loop, its steps and the evaluator share: objects, options of data loaders, and random
// streams.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "common/clock.h"
#include "trainer/config/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/distributed/distributed_data_parallel.h"
#include "trainer/engine/checkpointer.h"
#include "trainer/engine/profiler.h"
#include "trainer/engine/run_tracking.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"
#include "trainer/engine/train_step.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// The referenced objects must outlive the loop.
struct TrainParts {
  const TrainerConfig& config;  // after apply_plan()
  const BatchPlan& plan;
  const ProcessGroup& group;
  Task& task;
  DistributedDataParallel& model;
  TrainStep& step;
  Checkpointer* checkpointer;  // null if there are no checkpoints
  Telemetry& telemetry;
  StopAgreement& stop;
  const Clock& clock;
  RunTracking* tracking = nullptr;   // null on other ranks than 0, and if nothing is tracked
  StepProfiler* profiler = nullptr;  // null if no steps are traced
};

// Options of the data loader, for training and evaluation. Requires that config.loader.threads is set.
DataLoaderOptions loader_options(const TrainerConfig& config, at::Device device, int64_t batch_size, uint64_t seed);

// Options of the copies to the device.
PrefetchOptions feed_options(const TrainerConfig& config, int world_size);

// ---- Random streams ----------------------------------------------------------------------------------------------
// All are derived from the seed of the run. The numbers of a step depend on (seed, rank, step) only, so a resumed run
// draws the same numbers as one that was not interrupted, and no generator state is saved.

// Seeds LibTorch's default generators before the model is built, identically on all ranks.
void seed_model(uint64_t seed);

// Seeds the device's default generator for one training step (dropout).
void seed_step(uint64_t seed, int rank, int64_t step, c10::Device device);

// The seed of the data loader: augmentation depends on the epoch and the sample, not on the rank.
uint64_t epoch_seed(uint64_t seed, int64_t epoch);

}  // namespace oarlock
