// What a run's evaluations gave, in order.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock {

struct HistoryEntry {
  double epoch = 0;                         // passes over the training data until then
  int64_t step = 0;                         // optimizer steps until then
  double train_loss = 0;                    // mean over the samples since the entry before; NaN: there were none
  double learning_rate = 0;                 // of the last step
  double seconds = 0;                       // that the run has taken until then, all its processes together
  std::map<std::string, double> metrics{};  // of the evaluation
};

// By ascending step.
using History = std::vector<HistoryEntry>;

// Adds an entry; one of the same step, made again after a resume, takes the place of the old one.
void add_entry(History& history, HistoryEntry entry);

// {"epoch": [...], "step": [...], "train_loss": [...], "learning_rate": [...], "seconds": [...], "val_<metric>":
// [...]}, all lists as long; null where a number is not finite or was not given.
nlohmann::json to_columns(const History& history);

// The opposite. kDataErr: not such columns.
Result<History> from_columns(const nlohmann::json& columns);

}  // namespace oarlock
