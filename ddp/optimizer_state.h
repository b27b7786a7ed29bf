// The state of LibTorch's optimizers as named tensors: SGD, Adam, AdamW, Adagrad and RMSprop. Optimizer::save() of
// LibTorch orders the state by the position of the parameters, in an archive that only LibTorch reads.
//
// Names are those of Python: "<parameter>.<state>", such as "fc.weight.exp_avg". The step count of a parameter is an
// int64 scalar. "lr" has the learning rates of the parameter groups, in float64, because schedules change them. A
// parameter without state, which has not had a gradient, has no tensors.
#pragma once

#include <string>
#include <vector>

#include "common/error.h"
#include "ddp/named_tensors.h"
#include "ddp/tensor_map.h"

namespace torch::optim {
class Optimizer;
}

namespace oarlock {

// Returns the class of the optimizer without its namespace, "AdamW". Returns kUsage for a class that is not listed
// above.
Result<std::string> optimizer_name(const torch::optim::Optimizer& optimizer);

// Returns the state. Except for the numbers, the tensors share their memory with the optimizer. `parameters` names its
// parameters. Returns kUsage as optimizer_name(), or if a parameter of the optimizer has no name.
Result<TensorMap> optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                    const std::vector<NamedTensor>& parameters);

// Returns the names, dtypes and shapes that `saved` must have so that the optimizer can continue from it, as tensors
// without memory (device "meta"). A parameter has state in the result if it has any in `saved`. Fails as
// optimizer_tensors().
Result<TensorMap> expected_optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                             const std::vector<NamedTensor>& parameters, const TensorMap& saved);

// Replaces the state by copies of `saved`, which must have passed check_tensors() with expected_optimizer_tensors().
// The state is created on the devices of the parameters.
Result<void> set_optimizer_tensors(torch::optim::Optimizer& optimizer, const std::vector<NamedTensor>& parameters,
                                   const TensorMap& saved);

}  // namespace oarlock
