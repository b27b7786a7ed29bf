// The section "ema": an exponential moving average of the weights.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct EmaConfig {
  bool enabled = false;
  double decay = 0.9999;
  bool warmup = false;   // decay of update n (from 1) is min(decay, (1 + n) / (10 + n))
  bool buffers = false;  // average floating-point buffers too; else the model's own are used
  bool evaluate = true;  // evaluations use the averaged weights
};

void describe(EmaConfig& config, Fields& fields);

}  // namespace oarlock
