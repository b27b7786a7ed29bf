// What a run works with.
#pragma once

#include "common/clock.h"
#include "trainer/config/batch_plan.h"
#include "trainer/config/config.h"
#include "trainer/distributed/distributed_model.h"
#include "trainer/engine/checkpointer.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"
#include "trainer/engine/train_step.h"
#include "trainer/telemetry/telemetry.h"

namespace oarlock {

// All of it outlives the loops.
struct TrainParts {
  const TrainerConfig& config;  // scaled() by the plan
  const BatchPlan& plan;
  const RankGroup& group;
  Task& task;
  DistributedModel& model;
  TrainStep& step;
  Checkpointer* checkpointer;  // null: no checkpoints
  Telemetry& telemetry;
  StopAgreement& stop;
  const Clock& clock;
};

}  // namespace oarlock
