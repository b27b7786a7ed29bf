// Which parameters an optimizer updates alike.
#pragma once

#include <vector>

#include "common/error.h"
#include "trainer/config/optimizer.h"
#include "trainer/nn/named_tensors.h"

namespace oarlock {

// Not empty; of one type and device, as the fused kernels want them.
struct ParameterGroup {
  double lr = 0;  // before the schedule
  double weight_decay = 0;
  std::vector<NamedTensor> parameters;
};

// The trainable parameters by optimizer.groups, in their order; those that fit none come last. kConfig when a group is
// left without parameters, because its pattern matches none or others have taken them.
Result<std::vector<ParameterGroup>> group_parameters(const OptimizerConfig& config,
                                                     const std::vector<NamedTensor>& parameters);

}  // namespace oarlock
