// The section "predict": GEARS.predict() and GI_predict().
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/engine/eval_pass.h"
#include "trainer/tasks/gears/config.h"
#include "trainer/tasks/gears/data.h"

namespace oarlock::gears {

// The perturbations to predict: first those of the configuration in its order, then those that interactions need.
struct Queries {
  std::vector<std::string> names;
  at::Tensor perturbed;  // int64 [queries, 2]
};

// Fails with kConfig if a gene cannot be perturbed, a query has more than two genes, or an interaction not exactly two.
Result<Queries> make_queries(const GearsPredictConfig& config, const GearsData& data);

// Writes the files of the configuration from the rows of GroupedCells samples, with one group per query. Fails with
// kNoInput, kCantCreate or kIoErr.
Result<void> write_predictions(const GearsPredictConfig& config, const GearsData& data, const Queries& queries,
                               const EvalRows& rows);

}  // namespace oarlock::gears
