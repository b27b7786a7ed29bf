// The perturbations that a configuration asks about: GEARS.predict() and GI_predict().
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/engine/eval_pass.h"
#include "trainer/tasks/gears/gears_data.h"
#include "trainer/tasks/gears/task_config.h"

namespace oarlock {

// What has to be predicted: `perturbations` first, as they are in the configuration, then what interactions need.
struct Queries {
  std::vector<std::string> names;
  at::Tensor perturbed;  // int64 [queries, 2]
};

// kConfig: a gene that cannot be perturbed, more than two of them, an interaction of other than two.
Result<Queries> make_queries(const GearsPredictConfig& config, const GearsData& data);

// From the rows of GroupedCells samples, one group per query, writes what the configuration asks for. kNoInput,
// kCantCreate, kIoErr.
Result<void> write_predictions(const GearsPredictConfig& config, const GearsData& data, const Queries& queries,
                               const EvalRows& rows);

}  // namespace oarlock
