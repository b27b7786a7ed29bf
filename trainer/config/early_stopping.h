// The section "early_stopping": when a run ends because it gets no better.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class MetricMode { kMin, kMax };
enum class Aggregate { kAny, kAll };

// One metric that is watched.
struct WatchedMetric {
  std::string name;  // empty: the task's monitor, with its mode
  MetricMode mode = MetricMode::kMin;
  double min_delta = 0;                   // a change of no more than this is no improvement
  int64_t grace_period = 0;               // evaluations before patience is lost
  std::optional<double> init_best_score;  // what the first value must beat; none: any value is better
};

struct EarlyStoppingConfig {
  std::optional<int64_t> patience;         // evaluations without improvement; none: never stops early
  std::vector<WatchedMetric> metrics{{}};  // at least one
  Aggregate aggregate = Aggregate::kAll;   // of several metrics: which must improve for the model to have improved
};

void describe(EarlyStoppingConfig& config, Fields& fields);

}  // namespace oarlock
