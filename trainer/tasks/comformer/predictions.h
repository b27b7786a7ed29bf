// Errors on the test set, and the file of predictions.
#pragma once

#include <filesystem>

#include "trainer/engine/eval_pass.h"

namespace oarlock::comformer {

// Returns mae, rmse and r2 from the rows "target" and "prediction" [n, targets]. R2 is computed per target and
// averaged, as by sklearn's r2_score; it is NaN if all targets are equal.
Metrics regression_metrics(const EvalRows& rows);

// Writes a CSV file of id, target and prediction (target_0, target_1 ... if there are several), in the order of the
// structures in the test set. The id is the index of a structure in its file (row "structure" [n]). Numbers round-trip
// bitwise. Fails with kCantCreate or kIoErr.
Result<void> write_predictions(const std::filesystem::path& path, const EvalRows& rows);

}  // namespace oarlock::comformer
