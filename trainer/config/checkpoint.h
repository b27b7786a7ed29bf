// The section "checkpoint": what is saved, where and when.
#pragma once

#include "trainer/config/early_stopping.h"
#include "trainer/config/fields.h"

namespace oarlock {

enum class CheckpointErrors { kContinue, kStop };
enum class AllDamaged { kStop, kRestart };

struct BestConfig {
  bool save = true;
  std::string metric;  // empty: the task's monitor
  MetricMode mode = MetricMode::kMin;
};

struct CheckpointConfig {
  std::string dir;           // empty: no checkpoints
  int64_t every_steps = 0;   // 0: not by steps
  int64_t every_epochs = 1;  // 0: not by epochs; the end of the run is always saved
  int keep = 3;              // besides the best; 0: all
  CheckpointErrors on_error = CheckpointErrors::kContinue;
  AllDamaged on_all_damaged = AllDamaged::kStop;
  BestConfig best;
};

void describe(CheckpointConfig& config, Fields& fields);

}  // namespace oarlock
