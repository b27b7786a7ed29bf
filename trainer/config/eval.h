// The section "eval": when and how the model is evaluated.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct EvalConfig {
  int64_t every_epochs = 1;  // 0: not by epochs; the end of the run is always evaluated
  int64_t every_steps = 0;   // 0: not by steps
  int64_t batch_size = 0;    // samples per step on one rank; 0: batch.size
  std::string rows_file;     // CSV of the last evaluation's rows; empty: none
};

void describe(EvalConfig& config, Fields& fields);

}  // namespace oarlock
