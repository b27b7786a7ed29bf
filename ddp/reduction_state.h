// The state of gradient reduction, which a checkpoint contains so that a resumed run is bitwise equal to one that was
// not interrupted. A program that includes this header needs the headers of nlohmann-json.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace oarlock {

struct ReductionState {
  nlohmann::json values;                      // the same on all ranks; null if there is no state
  std::map<std::string, at::Tensor> tensors;  // of all ranks; on rank 0 only
};

inline constexpr char kPowerSgdValues[] = "powersgd";  // key in ReductionState::values

}  // namespace oarlock
