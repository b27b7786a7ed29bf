#include "trainer/config/schedule.h"

namespace oarlock {

void describe(ScheduleConfig& config, Fields& fields) {
  fields.choice<ScheduleKind>("name", config.kind,
                              {{"constant", ScheduleKind::kConstant}, {"cosine", ScheduleKind::kCosine}},
                              "how the learning rate goes on after the warm-up");
  fields.field("warmup_steps", config.warmup_steps, at_least(0), "steps of a linear rise to optimizer.lr");
}

}  // namespace oarlock
