// What the test set shows: errors, and a file of predictions.
#pragma once

#include <filesystem>

#include "trainer/engine/eval_pass.h"

namespace oarlock {

// rows: "structure" [n], "target" and "prediction" [n, targets]. R2 is that of each target, then their mean, as
// sklearn's r2_score; NaN where all targets are equal.
Metrics regression_metrics(const EvalRows& rows);

// CSV: id, target, prediction (target_0, target_1 ... where there are several), by the structures' order in the test
// set; the id is a structure's number in its file. Numbers read back as the same bits. kCantCreate, kIoErr.
Result<void> write_predictions(const std::filesystem::path& path, const EvalRows& rows);

}  // namespace oarlock
