// The objects that the training loop and the evaluator share, and the options of their data loaders.
#pragma once

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

}  // namespace oarlock
