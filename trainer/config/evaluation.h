// The sections of the configuration about evaluating and saving a model: "eval", "early_stopping", "checkpoint" and
// "report".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fields/fields.h"

namespace oarlock {

enum class MetricMode { kMin, kMax };  // whether lower or higher values are better

struct EvalConfig {
  int64_t every_epochs = 1;  // 0: not by epochs; the end of the run is always evaluated
  int64_t every_steps = 0;   // 0: not by steps
  int64_t batch_size = 0;    // samples per step on one rank; 0: batch.size
  std::string rows_file;     // CSV of the newest evaluation's rows; empty: none
};

enum class Aggregate { kAny, kAll };

struct WatchedMetric {
  std::string name;  // empty: the task's monitor, with its mode
  MetricMode mode = MetricMode::kMin;
  double min_delta = 0;                   // changes up to this are not an improvement
  int64_t grace_period = 0;               // evaluations before patience decreases
  std::optional<double> init_best_score;  // the first value must be better than this; default: any value is
};

struct EarlyStoppingConfig {
  std::optional<int64_t> patience;         // evaluations without improvement; none: early stopping is disabled
  std::vector<WatchedMetric> metrics{{}};  // at least one
  Aggregate aggregate = Aggregate::kAll;   // with several metrics: how many must improve for the model to improve
};

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
  int keep = 3;              // newest checkpoints that are kept in addition to the best; 0: all
  CheckpointErrors on_error = CheckpointErrors::kContinue;
  AllDamaged on_all_damaged = AllDamaged::kStop;
  BestConfig best;
};

// Files that rank 0 writes after every evaluation, relative to checkpoint.dir if that is set. Empty: none.
struct ReportConfig {
  std::string history;  // JSON
  std::string curves;   // SVG
};

void describe(EvalConfig& config, Fields& fields);
void describe(EarlyStoppingConfig& config, Fields& fields);
void describe(CheckpointConfig& config, Fields& fields);
void describe(ReportConfig& config, Fields& fields);

}  // namespace oarlock
