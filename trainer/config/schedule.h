// The section "schedule": the learning rate over the run.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class ScheduleKind { kConstant, kCosine };

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t warmup_steps = 0;  // linear from lr / warmup_steps to lr
};

void describe(ScheduleConfig& config, Fields& fields);

}  // namespace oarlock
