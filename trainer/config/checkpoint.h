// The section "checkpoint": what is saved, where and when.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct CheckpointConfig {
  std::string dir;           // empty: no checkpoints
  int64_t every_steps = 0;   // 0: not by steps
  int64_t every_epochs = 1;  // 0: not by epochs; the end of the run is always saved
  int keep = 3;              // 0: all
};

void describe(CheckpointConfig& config, Fields& fields);

}  // namespace oarlock
