// The objects that the training loop and the evaluator use.
#pragma once

#include "common/clock.h"
#include "trainer/config/batch_plan.h"
#include "trainer/config/config.h"
#include "trainer/distributed/distributed_data_parallel.h"
#include "trainer/engine/checkpointer.h"
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
};

}  // namespace oarlock
