#include "trainer/config/batch.h"

namespace oarlock {

void describe(BatchConfig& config, Fields& fields) {
  fields.field("size", config.size, at_least(1), "samples");
  fields.choice<BatchPer>("per", config.per, {{"device", BatchPer::kDevice}, {"global", BatchPer::kGlobal}},
                          "whose batch size is meant: that of one rank's forward pass, or that of the whole step of "
                          "all ranks, which ranks times gradient.accumulation_steps must divide");
  fields.field("drop_last", config.drop_last, "drop an epoch's last step where it is not full");
}

}  // namespace oarlock
