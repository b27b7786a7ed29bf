// The history of a run: the results of its evaluations, as JSON columns and as curves.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct HistoryEntry {
  double epoch = 0;                         // completed passes over the training data, with the current fraction
  int64_t step = 0;                         // completed optimizer steps
  double train_loss = 0;                    // mean over the samples since the previous entry; NaN without samples
  double learning_rate = 0;                 // of the last step
  double seconds = 0;                       // duration of the run so far, over all its processes
  std::map<std::string, double> metrics{};  // of the evaluation
};

// In ascending order of steps.
using History = std::vector<HistoryEntry>;

// Appends an entry. Replaces entries of the same and later steps, which a resumed run evaluates again.
void add_entry(History& history, HistoryEntry entry);

// Returns {"epoch": [...], "step": [...], "train_loss": [...], "learning_rate": [...], "seconds": [...],
// "val_<metric>": [...]}, all lists of the same length; null for a number that is missing or not finite.
nlohmann::json to_columns(const History& history);

// The inverse of to_columns(). Fails with kDataErr for anything else.
Result<History> from_columns(const nlohmann::json& columns);

// Returns an SVG document with a chart over the epochs for the loss in training and evaluation, for each other metric,
// and for the learning rate. A number that is not finite leaves a gap in its curve. Without entries the charts are
// empty.
std::string render_curves(const History& history);

}  // namespace oarlock
